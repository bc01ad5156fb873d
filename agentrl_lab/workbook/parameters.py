"""Values for a notebook's parameters, converted by declared type. Knows no notebook.

papermill itself passes the string "false" for `-p flag false`, the string "1e-3" for YAML's 1e-3,
and 8 for 010. Here every value is read as text first and converted by what the notebook declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agentrl_lab.config import nearest

KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list[int]": "a list such as [1, 2]",
    "list[float]": "a list such as [0.1, 0.15]",
    "list[str]": "a list such as [a, b]",
}
"""Types that survive the way through papermill, in words. A tuple would arrive as a string."""
WORDS_FOR_NONE = {"none", "null", "~", ""}


@dataclass(frozen=True, slots=True)
class Declared:
    """What a notebook says about one parameter; optional: its default is None."""

    kind: str
    optional: bool = False


def read_given(pairs: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Values as a person wrote them, not yet converted: files first, pairs win.

    Args:
        pairs: `name=value` each.
        files: YAML, one mapping of names to values each.

    Raises:
        ValueError: a pair has no `=`, or a file holds no mapping.
    """
    given: dict[str, Any] = {}
    for path in files:
        content = _load(path.read_text(encoding="utf-8"), str(path))
        if not isinstance(content, dict):
            raise ValueError(f"{path} must hold lines `name: value`, got {content!r}")
        given |= content
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"-p takes name=value, got {pair!r}")
        given[name.strip()] = value
    return given


def _load(text: str, where: str) -> Any:
    try:
        return yaml.load(text, yaml.BaseLoader)  # every scalar stays text: no octal, no yes and no
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def convert(declared: Mapping[str, Declared], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values in their declared types.

    Raises:
        ValueError: a name is not declared (the nearest is offered), or a value does not fit.
    """
    for name in given:
        if name not in declared:
            raise ValueError(f"no parameter is called {name!r}: {nearest(name, declared)}")
    return {name: _convert(name, value, declared[name]) for name, value in given.items()}


def _convert(name: str, value: Any, declared: Declared) -> Any:
    if declared.optional and str(value).strip().lower() in WORDS_FOR_NONE:
        return None
    kind = declared.kind
    try:
        if not kind.startswith("list"):
            return _scalar(value, kind)
        items = _load(value, name) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise ValueError("not a list")
        return [_scalar(item, kind.removeprefix("list[").rstrip("]")) for item in items]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{name} must be {KINDS[kind]} ({kind}), got {value!r}") from error


def _scalar(value: Any, kind: str) -> bool | int | float | str:
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError("not a single value")
    text = str(value).strip()
    if kind == "bool":
        return {"true": True, "false": False}[text.lower()]
    if kind == "int":
        return int(text)
    if kind == "float":
        return _number(text)
    return str(value)


def _number(text: str) -> float:
    number = float(text.replace(".inf", "inf"))  # as YAML writes infinity
    if math.isnan(number):
        raise ValueError("not a number")
    return number

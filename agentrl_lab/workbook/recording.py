"""What an executed notebook leaves for the runner: recorded values, and the word that it finished.

Values travel in the outputs, as a MIME bundle that survives papermill; claims in a result file that
the last cell writes. Knows nothing of how notebooks are run or judged.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

RECORD_MIME = "application/vnd.agentrl-lab.record+json"
RESULT_VARIABLE = "AGENTRL_LAB_RESULT"
"""Environment variable with the path of the result file; the runner sets it."""

Plain = bool | int | float | str


def record(**values: Plain) -> None:
    """Displays values in a form that people and the runner can read.

    Args:
        values: by name; numbers (kept to 4 significant digits; whole ones exactly), str or bool.

    Raises:
        TypeError: a value is of another type.
        ValueError: a number is not finite, or nothing was given.
    """
    from IPython.display import display

    if not values:
        raise ValueError("record() needs at least one value: record(test_success=0.84)")
    plain = {name: _plain(name, value) for name, value in values.items()}
    words = "recorded: " + ", ".join(f"{name} {value}" for name, value in plain.items())
    display({RECORD_MIME: plain, "text/plain": words}, raw=True)


def _plain(name: str, value: Any) -> Plain:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real):
        raise TypeError(
            f"record({name}=...) takes a number, str or bool, got {type(value).__name__}: "
            "give one plain value, such as tensor.item() or len(rows)"
        )
    if not math.isfinite(value):
        raise ValueError(
            f"record({name}=...) needs a finite number, got {value}: it went wrong before this cell"
        )
    return float(f"{value:.4g}")  # nbval and baselines compare exactly what is stored


def finish(claims: Mapping[str, bool]) -> None:
    """Writes the result file, whole or not at all, if the runner asked for one.

    A run without this file did not reach its last cell, whatever the stored statuses say.

    Args:
        claims: what the notebook says about its own run -> whether it held.
    """
    named = os.environ.get(RESULT_VARIABLE)
    if named:
        content = {"claims": {words: bool(held) for words, held in claims.items()}}
        write_json(Path(named), content | {"finished": True})


def write_json(path: Path, content: Any) -> None:
    """A JSON file, whole or not at all."""
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """A file, whole or not at all."""
    aside = path.with_name(f".{path.name}.partial")
    aside.write_bytes(content)
    aside.replace(path)


def read_records(notebook_node: Any) -> dict[str, Plain]:
    """All values that an executed notebook recorded.

    Args:
        notebook_node: as nbformat reads it.

    Raises:
        ValueError: a name was recorded twice, with different values.
    """
    found: dict[str, Plain] = {}
    for bundle in _bundles(notebook_node):
        for name, value in bundle.items():
            if found.setdefault(name, value) != value:
                raise ValueError(
                    f"{name} was recorded twice, as {found[name]} and as {value}: "
                    "give each value a name of its own"
                )
    return found


def _bundles(notebook_node: Any) -> list[Mapping[str, Plain]]:
    outputs = [out for cell in notebook_node.cells for out in cell.get("outputs", [])]
    return [out["data"][RECORD_MIME] for out in outputs if RECORD_MIME in out.get("data", {})]

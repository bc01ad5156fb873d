"""Ways to cut a tool's answer to a budget of tokens, and what each leaves of every field (B3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_lab.world.observations import CountTokens, summarize

Show = Callable[[Mapping[str, Any], int, CountTokens], str]
"""(raw answer, budget in tokens, how to count them) -> the text that the policy reads."""


def by_field(answer: Mapping[str, Any], budget: int, count: CountTokens) -> str:
    """The package's own summary (B3)."""
    return summarize(answer, budget=budget, count_tokens=count)


def keep_start(answer: Mapping[str, Any], budget: int, count: CountTokens) -> str:
    """The longest beginning of the JSON text that fits: what a plain limit on length does."""
    text = as_json(answer)
    return text[: _most(len(text), lambda size: count(text[:size]) <= budget)]


def keep_end(answer: Mapping[str, Any], budget: int, count: CountTokens) -> str:
    """The longest end of the JSON text that fits: what a log viewer does."""
    text = as_json(answer)
    size = _most(len(text), lambda size: count(text[len(text) - size :]) <= budget)
    return text[len(text) - size :]


def as_json(value: Any) -> str:
    """The text of an API answer, without blanks, fields in the order they came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest size that fits, 0 if none does. By halves: to count a long text takes time."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


WHOLE, PART, NAME, PIECE, LOST = (
    "name and value", "name, part of the value", "name only", "a piece, no name", "lost",
)  # fmt: skip


def survival(answer: Mapping[str, Any], text: str) -> dict[str, str]:
    """What a cut text still says about each field of the answer, in the answer's order.

    >>> survival({"id": 7, "paid": True, "team": "x"}, '{"id":7,"paid":t')
    {'id': 'name and value', 'paid': 'name, part of the value', 'team': 'lost'}
    """
    listed = re.search(r'"more":"([^"]*)', text)
    names = listed[1].split() if listed else []
    states = {name: _state(name, as_json(value), text, names) for name, value in answer.items()}
    whole = as_json(answer)
    if torn := _torn(answer, len(whole) - len(text)) if whole.endswith(text) else None:
        states[torn] = PIECE
    return states


def _state(name: str, value: str, text: str, names: Sequence[str]) -> str:
    _, found, rest = text.partition(f'"{name}":')
    if found and rest.startswith(value):
        return WHOLE
    if found and rest.strip('"'):
        return PART
    return NAME if found or name in names else LOST


def _torn(answer: Mapping[str, Any], start: int) -> str | None:
    """The field in whose value the JSON text is cut, if it begins at this character."""
    end = 1
    for name, value in answer.items():
        begin = end + len(as_json(name)) + 1
        end = begin + len(as_json(value)) + 1
        if begin < start < end - 1:
            return name
    return None

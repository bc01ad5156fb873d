"""Checks of the exercises of notebook 06; each names the usual mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from agentrl_lab.workbook.checks import Verdict, Wrong, final, judge, report, short

__all__ = ["check_idle", "check_threshold", "final", "judge", "report"]


# 6.1: the bonus from which it pays never to finish

TURNS = (5, 6, 9)
MISTAKES: dict[str, Callable[[int], float]] = {
    "the honest episode is paid for its three calls as well": lambda turns: 2 / turns,
    "the episode that never finishes ends with -1": lambda turns: 1 / (turns - 3),
    "the reply is an answered call too: honesty makes three": lambda turns: 2 / (turns - 2),
    "compare with the honest return, which is 1 and three bonuses": lambda turns: 1 / turns,
}


def check_threshold(threshold: Callable[[int], float]) -> Verdict:
    """Exercise 6.1: threshold(turns) -> bonus at which both returns are equal.

    -1 + turns * b = 1 + 3 * b
    """
    got = [threshold(turns) for turns in TURNS]
    for value in got:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise Wrong(f"expected a finite number, got {short(value)}: is return missing?")
    if _equal(got, [2 / (turns - 3) for turns in TURNS]):
        return Verdict(True, f"with six turns it is {2 / 3:.2f}, with nine {1 / 3:.2f}")
    for mistake, wrong in MISTAKES.items():
        if _equal(got, [wrong(turns) for turns in TURNS]):
            raise Wrong(mistake)
    if got[0] == got[1] == got[2]:
        raise Wrong("it must fall with the number of turns: each turn more brings a bonus more")
    raise Wrong(
        f"with 6 turns got {got[1]:.3f}: there honesty earns {1 + 3 * got[1]:.2f} and never "
        f"finishing {6 * got[1] - 1:.2f}; they should be equal"
    )


def _equal(a: list[float], b: list[float]) -> bool:
    return all(math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-9) for x, y in zip(a, b, strict=True))


# 6.2: idle calls

Call = tuple[str, dict[str, Any], bool]
Q1, Q2 = ("query", {"id": "S1"}, False), ("query", {"id": "S2"}, False)
CLOSED = ("update", {"id": "S1", "to": "closed"}, True)
CASES: list[tuple[str, list[Call], int]] = [
    ("an honest episode", [Q1, CLOSED, ("reply", {"text": "done"}, False)], 0),
    ("nothing at all", [], 0),
    ("three times the same query", [Q1, Q1, Q1], 2),
    ("two tickets in turn", [Q1, Q2, Q1, Q2], 2),
    ("arguments in another order", [
        ("update", {"id": "S1", "to": "open"}, True), ("update", {"to": "open", "id": "S1"}, False),
    ], 1),
    ("open and closed in turn: each changes something", [
        CLOSED, ("update", {"id": "S1", "to": "open"}, True), CLOSED,
    ], 0),
    ("the same arguments for another tool", [Q1, ("delete", {"id": "S1"}, False)], 0),
    ("the first call changes nothing", [("update", {"id": "S1", "to": "open"}, False)], 0),
]  # fmt: skip
HINTS = {
    "an honest episode": "a first call is never idle, even one that changes nothing",
    "three times the same query": "the first of them is needed; each one after it is idle",
    "two tickets in turn": "a repeat need not follow at once: remember all that was called",
    "arguments in another order": "the same arguments in another order are the same call",
    "open and closed in turn: each changes something": "a call that changes something is not idle",
    "the same arguments for another tool": "the tool belongs to the call",
    "the first call changes nothing": "a first call is never idle, even one that changes nothing",
}


def check_idle(idle: Callable[[list[Call]], int]) -> Verdict:
    """Exercise 6.2: idle(calls) -> how many repeat an earlier call and change nothing."""
    for name, calls, wanted in CASES:
        given = [(tool, dict(arguments), changed) for tool, arguments, changed in calls]
        got = idle(given)
        if isinstance(got, bool) or not isinstance(got, int):
            raise Wrong(f"{name}: expected a whole number, got {short(got)}")
        if got != wanted:
            hint = HINTS.get(name, "")
            raise Wrong(f"{name}: expected {wanted}, got {got}{': ' if hint else ''}{hint}")
    return Verdict(True, f"right in all {len(CASES)} episodes, also where changes go to and fro")

"""Checks of the exercises of notebook 06; each names the usual mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from agentrl_lab.workbook.checks import (
    Case,
    Verdict,
    Wrong,
    final,
    judge,
    number,
    report,
    try_cases,
    whole,
)

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
    got = [number(threshold(turns), f"{turns} turns") for turns in TURNS]
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
FIRST = "a first call is never idle, even one that changes nothing"
Q1, Q2 = ("query", {"id": "S1"}, False), ("query", {"id": "S2"}, False)
CLOSED, AGAIN = (("update", {"id": "S1", "to": "closed"}, changed) for changed in (True, False))
OPEN = ("update", {"id": "S1", "to": "open"}, True)
FIND = [("find", {"id": "S1", "of": "Ann"}, False), ("find", {"of": "Ann", "id": "S1"}, False)]
MOVES = [("move", {"from": a, "to": b}, False) for a, b in (("S1", "S2"), ("S2", "S1"))]
CASES: list[Case] = [
    ("an honest episode", ([Q1, CLOSED, ("reply", {"text": "done"}, False)],), 0, FIRST),
    ("nothing at all", ([],), 0, "where nothing is called nothing is idle"),
    ("the first call changes nothing", ([AGAIN],), 0, FIRST),
    ("three times the same query", ([Q1, Q1, Q1],), 2,
     "the first of them is needed; each one after it is idle"),
    ("two tickets", ([Q1, Q2],), 0, "the values of the arguments belong to the call"),
    ("two tickets in turn", ([Q1, Q2, Q1, Q2],), 2,
     "a repeat need not follow at once: remember all that was called"),
    ("a query, a change, the query", ([Q1, CLOSED, Q1],), 1,
     "a change makes no call a first one: the same query is idle after it as well"),
    ("arguments in another order", (FIND,), 1,
     "the same arguments in another order are the same call"),
    ("a change made twice", ([CLOSED, AGAIN],), 1,
     "a call that changed something is remembered, too: the second time it changes nothing"),
    ("open and closed in turn", ([CLOSED, OPEN, CLOSED],), 0,
     "a call that changes something is not idle"),
    ("the same arguments for another tool", ([Q1, ("delete", {"id": "S1"}, False)],), 0,
     "the tool belongs to the call"),
    ("the same value under another name", ([Q1, ("query", {"customer": "S1"}, False)],), 0,
     "the names of the arguments belong to the call"),
    ("there and back", (MOVES,), 0, "which value belongs to which name counts"),
    ("no arguments, twice", ([("list", {}, False)] * 2,), 1, "no arguments are the same again"),
]  # fmt: skip


def check_idle(idle: Callable[[list[Call]], int]) -> Verdict:
    """Exercise 6.2: idle(calls) -> how many repeat an earlier call and change nothing."""
    done = f"right in all {len(CASES)} episodes, also where changes go to and fro"
    return try_cases(idle, CASES, whole, done=done)

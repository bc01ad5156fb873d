"""Checks of the exercises of notebook 07; each names the usual mistake."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from agentrl_lab.workbook.checks import Verdict, Wrong, final, judge, report, unfit

__all__ = ["check_only_declared", "check_swap", "final", "judge", "report"]

Answer = dict[str, Any]
_RNG = random.Random(7)  # no period, so that a rotation is a change
ANSWERS: list[Answer] = [
    {
        "ticket_id": f"S{1000 + n}", "status": _RNG.choice(("open", "pending", "closed")),
        "paid": _RNG.random() < 0.5, "tags": ["late", n],
    }
    for n in range(40)
]  # fmt: skip


# 7.1: one field, swapped among answers


def check_swap(swap: Callable[[list[Answer], str, random.Random], list[Answer]]) -> Verdict:
    """Exercise 7.1: swap(answers, field, rng) -> answers with one field's values mixed up."""
    for field in ("status", "paid"):
        given, seen = copy.deepcopy(ANSWERS), []
        for seed in (0, 1, 2, 0):
            got = swap(given, field, random.Random(seed))
            if given != ANSWERS:
                raise Wrong("the answers that were given have changed: make copies of them")
            if not isinstance(got, list) or not all(isinstance(answer, dict) for answer in got):
                raise unfit("a list of answers", got)
            _check_swapped(got, field)
            seen.append([answer[field] for answer in got])
        if seen[0] == seen[1] == seen[2] or seen[0] != seen[3]:
            raise Wrong("the order does not follow the generator: draw from rng, not your own")
    return Verdict(True, f"{len(ANSWERS)} answers, one field in another order, the rest untouched")


def _check_swapped(got: list[Answer], field: str) -> None:
    if len(got) != len(ANSWERS):
        raise Wrong(f"expected {len(ANSWERS)} answers, got {len(got)}")
    old, values = ([answer.get(field) for answer in answers] for answers in (ANSWERS, got))
    rest = [{name: value for name, value in a.items() if name != field} for a in got]
    if rest != [{name: value for name, value in a.items() if name != field} for a in ANSWERS]:
        if values == old:
            raise Wrong(f"{field!r} was to be swapped, and another field was: use `field`")
        raise Wrong("other fields have moved too: then nobody can say which one mattered")
    if values == old:
        raise Wrong("nothing has moved")
    if any(values.count(value) != old.count(value) for value in old):  # lists have no hash
        raise Wrong(
            "the values are not the old ones in another order: invented ones may be so odd that "
            "the policy stumbles over them, whether it reads the field or not"
        )


# 7.2: only what is declared


OWN = {"ticket_id": "S1001", "status": "open", "paid": True}
LEAKS = ("expected_action", "_debug", "next_step", "ticket_id2", "status_hint", "ticket", "aid",
         "Status")  # fmt: skip
FALSY = {"ticket_id": "", "status": None, "paid": False}
KEPT: list[tuple[Answer, set[str], Answer, str]] = [
    *(({leak: "update closed", **OWN}, set(OWN), OWN, "what is declared stays as it is")
      for leak in LEAKS),
    (FALSY, set(OWN), FALSY, "False, None and an empty text are values: they stay as they are"),
    ({"error": "x"}, {"error", "status"}, {"error": "x"},
     "an answer without a declared field keeps what it has, and gets nothing new"),
    ({**OWN, "error": "x"}, {"error"}, {"error": "x"}, "what may pass is in `declared`, and alone"),
    (OWN, set(), {}, "where nothing is declared nothing passes"),
    ({}, set(OWN), {}, "an empty answer stays empty"),
]  # fmt: skip


def check_only_declared(only_declared: Callable[[Answer, set[str]], Answer]) -> Verdict:
    """Exercise 7.2: only_declared(answer, declared) -> the declared fields, as they are."""
    for answer, declared, wanted, overlooked in KEPT:
        given, names = dict(answer), set(declared)
        got = only_declared(given, names)
        if (given, names) != (answer, declared):
            raise Wrong("the answer that was given has changed: make a new one")
        if not isinstance(got, dict):
            raise unfit("an answer (a dict)", got)
        if leaks := [leak for leak in LEAKS if leak in got]:
            raise Wrong(
                f"{leaks[0]!r} went through: name what may pass, whole, since nobody knows what "
                "the next field that must not will be called"
            )
        if got != wanted:
            raise unfit(f"{wanted} ({overlooked})", got)
    return Verdict(True, "whatever the leak is called, it stays outside")

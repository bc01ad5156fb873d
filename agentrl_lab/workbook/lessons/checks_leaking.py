"""Checks of the exercises of notebook 07; each names the usual mistake."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from agentrl_lab.workbook.checks import Verdict, Wrong, final, judge, report, short

__all__ = ["check_only_declared", "check_swap", "final", "judge", "report"]

Answer = dict[str, Any]
FIELD = "status"
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
    given, seen = copy.deepcopy(ANSWERS), []
    for seed in range(3):
        got = swap(given, FIELD, random.Random(seed))
        if given != ANSWERS:
            raise Wrong("the answers that were given have changed: make copies of them")
        if not isinstance(got, list) or not all(isinstance(answer, dict) for answer in got):
            raise Wrong(f"expected a list of answers, got {short(got)}: is return missing?")
        _check_swapped(got)
        seen.append([answer[FIELD] for answer in got])
    if seen[0] == seen[1] == seen[2]:
        raise Wrong("three generators gave the same: draw from rng, and not from one of your own")
    return Verdict(True, f"{len(ANSWERS)} answers, one field in another order, the rest untouched")


def _check_swapped(got: list[Answer]) -> None:
    if len(got) != len(ANSWERS):
        raise Wrong(f"expected {len(ANSWERS)} answers, got {len(got)}")
    rest = [{name: value for name, value in a.items() if name != FIELD} for a in got]
    if rest != [{name: value for name, value in a.items() if name != FIELD} for a in ANSWERS]:
        raise Wrong("other fields have moved too: then nobody can say which one mattered")
    values = [answer.get(FIELD) for answer in got]
    if values == [answer[FIELD] for answer in ANSWERS]:
        raise Wrong("nothing has moved")
    if Counter(values) != Counter(answer[FIELD] for answer in ANSWERS):
        raise Wrong(
            "the values are not the old ones in another order: invented ones may be so odd that "
            "the policy stumbles over them, whether it reads the field or not"
        )


# 7.2: only what is declared


def check_only_declared(only_declared: Callable[[Answer, set[str]], Answer]) -> Verdict:
    """Exercise 7.2: only_declared(answer, declared) -> the declared fields, in their order."""
    declared = {"ticket_id", "status", "paid"}
    own = {"ticket_id": "S1001", "status": "open", "paid": True}
    for leak in ("expected_action", "_debug", "next_step", "ticket_id2", "status_hint"):
        given = {leak: "update closed", **own}
        got = only_declared(given, set(declared))
        if given != {leak: "update closed", **own}:
            raise Wrong("the answer that was given has changed: make a new one")
        if not isinstance(got, dict):
            raise Wrong(f"expected an answer (a dict), got {short(got)}: is return missing?")
        if leak in got:
            raise Wrong(
                f"{leak!r} went through: name what may pass, since nobody knows what the next "
                "field that must not will be called"
            )
        if got != own:
            raise Wrong(f"expected {own}, got {short(got)}: what is declared stays as it is")
    if only_declared({"error": "x"}, {"status", "error"}) != {"error": "x"}:
        raise Wrong("an answer without a declared field keeps what it has, and gets nothing new")
    return Verdict(True, "whatever the leak is called, it stays outside")

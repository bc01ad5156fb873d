"""Checks of the exercises of notebook 09; each names the usual mistake."""

from __future__ import annotations

import math
from collections.abc import Callable

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
from agentrl_lab.workbook.lessons.wasting import break_even

__all__ = ["check_break_even", "check_tokens_saved", "final", "judge", "report"]

Turn = tuple[int, bool]
"""(tokens, whether the action was invalid)."""

CASES: list[Case] = [
    ("six invalid ones", ([(10, True)] * 6,), 30,
     "the first three are written all the same; count tokens, not turns"),
    ("no slip", ([(12, False), (15, False)],), 0,
     "nothing is saved where nothing is stopped; count what is not written"),
    ("three, but not in a row", (
        [(9, True), (9, True), (9, False), (9, True), (9, False)],), 0,
     "a valid action starts the count anew"),
    ("a late start", (
        [(10, False), (8, True), (8, True), (8, True), (20, False), (5, True)],), 25,
     "all that follows is saved, valid or not"),
    ("three, and then the end", ([(7, True)] * 3,), 0, "the third one itself is written"),
    ("three twice", ([(1, True)] * 3 + [(2, False)] + [(3, True)] * 3,), 11,
     "the episode ends at the first three"),
    ("one turn", ([(10, True)],), 0, "one invalid action ends nothing"),
    ("no tokens", ([(0, True)] * 3 + [(4, True)],), 4, "an action of no tokens is invalid as well"),
    ("nothing at all", ([],), 0, "an episode without turns saves nothing"),
]  # fmt: skip


def check_tokens_saved(tokens_saved: Callable[[list[Turn]], int]) -> Verdict:
    """Exercise 9.1: tokens_saved(turns) -> tokens after the third invalid action in a row."""
    return try_cases(tokens_saved, CASES, whole)


PRICES = [(1.0, -0.8, -1.0), (1.08, -0.8, 0.0), (1.0, -0.8, -0.5), (1.0, -0.9, 1.0),
          (1.0, -0.8, 1.5), (1.0, -0.5, 0.0), (2.0, 0.0, 0.5)]  # fmt: skip
MISTAKES: dict[str, Callable[[float, float, float], float]] = {
    "who fails is not paid 0 but `lose`": lambda win, lose, stop: stop / win,
    "that is the chance above which stopping pays": lambda win, lose, stop: (
        1 - (stop - lose) / (win - lose)
    ),
    "`win` is what a success pays, not what it pays more than a failure": lambda win, lose, stop: (
        (stop - lose) / win
    ),
}


def check_break_even(chance: Callable[[float, float, float], float]) -> Verdict:
    """Exercise 9.2: chance(win, lose, stop) -> p with p * win + (1 - p) * lose = stop."""
    got = [number(chance(*prices), f"win, lose, stop {prices}") for prices in PRICES]
    unbounded = [(stop - lose) / (win - lose) for win, lose, stop in PRICES]
    if _equal(got, unbounded):
        raise Wrong("a chance lies between 0 and 1: where stopping never pays, it is 0")
    if _equal(got, [break_even(*prices) for prices in PRICES]):
        return Verdict(True, "where three strikes cost nothing, stopping pays below 0.43")
    for mistake, wrong in MISTAKES.items():
        if any(_equal(got, [bound(wrong(*prices)) for prices in PRICES])
               for bound in (float, lambda p: min(1.0, max(0.0, p)))):  # fmt: skip
            raise Wrong(mistake)
    for (win, lose, stop), p in zip(PRICES, got, strict=True):
        if not _equal([p], [break_even(win, lose, stop)]):
            trying = p * win + (1 - p) * lose
            raise Wrong(
                f"for win {win}, lose {lose}, stop {stop} got {p:.3f}: trying pays {trying:.2f} "
                f"then, and stopping {stop:.2f}; they should be equal, or p at an end, 0 or 1"
            )


def _equal(a: list[float], b: list[float]) -> bool:
    return all(math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-9) for x, y in zip(a, b, strict=True))

"""Checks of the exercises of notebook 08; each names the usual mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentrl_lab.workbook.checks import Verdict, Wrong, final, judge, report, short

__all__ = ["check_go_back", "check_steps_taken", "final", "judge", "report"]

Case = tuple[str, tuple[Any, ...], Any, str]
"""What it is, the arguments, the right answer, what a wrong one overlooks."""

STEPS: list[Case] = [
    ("all far below", ([0.0, 0.01, 0.02], 0.1), 3, "without a stop all steps are taken"),
    ("the third is above", ([0.0, 0.05, 0.2, 0.3], 0.1), 2,
     "it is measured before the step: the step that goes with it is not taken"),
    ("one above, then below again", ([0.0, 0.2, 0.05, 0.05], 0.1), 1,
     "the rest of the update is skipped, not only the one step"),
    ("on the limit", ([0.0, 0.1, 0.1], 0.1), 3, "on the limit is not above it"),
    ("the first one is above", ([0.5, 0.0], 0.1), 0, "then no step is taken at all"),
    ("no steps", ([], 0.1), 0, "an update of no steps takes none"),
]  # fmt: skip

BACK: list[Case] = [
    ("it climbs", ([0.2, 0.5, 0.9], 0.3), False, "the newest is the best"),
    ("it falls at once", ([0.2, 0.9, 0.5], 0.3), True, "0.5 lies 0.4 below the best"),
    ("it slides down in small steps", ([0.9, 0.75, 0.6, 0.5], 0.3), True,
     "each step is small: compare with the best so far, not with the one before"),
    ("it came back", ([0.9, 0.4, 0.85], 0.3), False, "only the newest one decides"),
    ("below the first, near the best", ([0.3, 0.9, 0.7], 0.3), False, "0.7 is 0.2 below the best"),
    ("exactly the drop", ([1.0, 0.75], 0.25), False, "exactly the drop is not more than the drop"),
    ("the best is long ago", ([0.9, 0.5, 0.5, 0.5], 0.3), True, "look at the whole history"),
    ("nothing yet", ([], 0.3), False, "without a history there is nothing to go back to"),
]  # fmt: skip


def check_steps_taken(steps_taken: Callable[[list[float], float], int]) -> Verdict:
    """Exercise 8.1: steps_taken(kls, limit) -> steps before the first KL above the limit."""
    return _check(steps_taken, STEPS, int, "a whole number")


def check_go_back(go_back: Callable[[list[float], float], bool]) -> Verdict:
    """Exercise 8.2: go_back(history, drop) -> newest < max(history) - drop."""
    return _check(go_back, BACK, bool, "True or False")


def _check(answer: Callable[..., Any], cases: Sequence[Case], kind: type, words: str) -> Verdict:
    for name, (values, limit), wanted, overlooked in cases:
        got = answer(list(values), limit)
        if type(got) is not kind:
            raise Wrong(f"{name}: expected {words}, got {short(got)}: is return missing?")
        if got != wanted:
            raise Wrong(f"{name}: {values} with {limit:g} gives {wanted}, got {got}: {overlooked}")
    return Verdict(True, f"right in all {len(cases)} cases")

"""Checks of the exercises of notebook 08; each names the usual mistake."""

from __future__ import annotations

from collections.abc import Callable

from agentrl_lab.workbook.checks import (
    Case,
    Verdict,
    final,
    judge,
    report,
    truth,
    try_cases,
    whole,
)

__all__ = ["check_go_back", "check_steps_taken", "final", "judge", "report"]

STEPS: list[Case] = [
    ("all far below", ([0.0, 0.01, 0.02], 0.1), 3, "without a stop all steps are taken"),
    ("the third is above", ([0.0, 0.05, 0.2, 0.3], 0.1), 2,
     "it is measured before the step: the step that goes with it is not taken"),
    ("one above, then below again", ([0.0, 0.2, 0.05, 0.05], 0.1), 1,
     "the rest of the update is skipped, not only the one step"),
    ("on the limit", ([0.0, 0.1, 0.1], 0.1), 3, "on the limit is not above it"),
    ("the first one is above", ([0.5, 0.0], 0.1), 0, "then no step is taken at all"),
    ("no steps", ([], 0.1), 0, "an update of no steps takes none"),
    ("one step", ([0.05], 0.1), 1, "a single step may be taken, too"),
    ("a lower limit", ([0.0, 0.05, 0.08], 0.04), 1, "the limit is `limit`, whatever it is"),
    ("a higher limit", ([0.0, 0.2, 0.3, 0.5], 0.3), 3, "the limit is `limit`, whatever it is"),
    ("a limit of 0", ([0.0, 0.0, 0.05], 0.0), 2, "0 is a limit as well"),
]  # fmt: skip

DROP = "the fall that is allowed is `drop`, whatever it is"
BACK: list[Case] = [
    ("it climbs", ([0.2, 0.5, 0.9], 0.3), False, "the newest is the best"),
    ("it falls at once", ([0.2, 0.9, 0.5], 0.3), True, "0.5 lies 0.4 below the best"),
    ("it slides down in small steps", ([0.9, 0.75, 0.6, 0.5], 0.3), True,
     "each step is small: compare with the best so far, not with the one before"),
    ("it came back", ([0.9, 0.4, 0.85], 0.3), False, "only the newest one decides"),
    ("below the first, near the best", ([0.3, 0.9, 0.7], 0.3), False, "0.7 is 0.2 below the best"),
    ("exactly the drop", ([1.0, 0.75], 0.25), False, "exactly the drop is not more than the drop"),
    ("the best is long ago", ([0.9, *[0.5] * 12], 0.3), True, "look at the whole history"),
    ("it fell at once to nothing", ([0.9, 0.0], 0.3), True, "0.0 is a success rate as well"),
    ("little is allowed", ([0.4, 0.9, 0.7], 0.1), True, DROP),
    ("much is allowed", ([0.2, 0.9, 0.5], 0.5), False, DROP),
    ("no fall is allowed", ([0.5, 0.25], 0.0), True, "a drop of 0 is one as well"),
    ("only one", ([0.5], 0.3), False, "one success is its own best"),
    ("nothing yet", ([], 0.3), False, "without a history there is nothing to go back to"),
]  # fmt: skip


def check_steps_taken(steps_taken: Callable[[list[float], float], int]) -> Verdict:
    """Exercise 8.1: steps_taken(kls, limit) -> steps before the first KL above the limit."""
    return try_cases(steps_taken, STEPS, whole)


def check_go_back(go_back: Callable[[list[float], float], bool]) -> Verdict:
    """Exercise 8.2: go_back(history, drop) -> newest < max(history) - drop."""
    return try_cases(go_back, BACK, truth)

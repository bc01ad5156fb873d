"""Checks of the exercises of notebook 10; each names the usual mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    unfit,
)

__all__ = ["check_at_budget", "check_keep", "final", "judge", "report"]


# 10.1: what rejection sampling keeps

Attempt = tuple[int, bool, float]
"""(task, success, reward)."""
ATTEMPTS: list[Attempt] = [
    (0, True, 1.08), (0, True, 1.03), (0, False, -0.8), (0, True, 0.98), (1, False, -1.0),
    (1, False, 0.3), (2, True, 1.0), (3, False, -0.8), (3, True, 0.9), (0, True, 1.08),
]  # fmt: skip


EDGES: list[tuple[list[Attempt], int, str]] = [
    ([], 2, "of no attempts none are kept"),
    ([(5, True, -0.1)], 1, "a success stays one, whatever it was paid"),
    ([(5, True, 0.0)], 1, "a success stays one, whatever it was paid"),
    ([(5, True, 1.0)], 0, "none a task are none"),
]


def check_keep(keep: Callable[[list[Attempt], int], list[Attempt]]) -> Verdict:
    """Exercise 10.1: keep(attempts, per_task) -> the first successes of each task, in order."""
    for per_task, numbers in ((2, [0, 1, 6, 8]), (1, [0, 6, 8]), (9, [0, 1, 3, 6, 8, 9])):
        _check_kept(got := _kept(keep, ATTEMPTS, per_task), per_task)
        _check_complete(got, [ATTEMPTS[at] for at in numbers], per_task)
    for given, per_task, overlooked in EDGES:
        if _kept(keep, given, per_task) != (given if per_task else []):
            raise Wrong(f"{given} with {per_task} a task: {overlooked}")
    return Verdict(True, "successes alone, and no task more often than it may be")


def _kept(
    keep: Callable[[list[Attempt], int], Any], attempts: list[Attempt], per_task: int
) -> list[Attempt]:
    given = [*attempts]
    got = keep(given, per_task)
    if given != attempts:
        raise Wrong("the list that was given has changed: build a new one")
    if not isinstance(got, Iterable):
        raise unfit("a list of attempts", got)
    return list(got)


def _check_kept(got: list[Attempt], per_task: int) -> None:
    if any(attempt not in ATTEMPTS for attempt in got):
        raise Wrong("an attempt was made up: give back those that were given, as they are")
    if any(not success and reward > 0 for _, success, reward in got):
        raise Wrong("a failure with a positive reward was kept: success decides, not the reward")
    if any(not success for _, success, _ in got):
        raise Wrong("a failure was kept")
    counts = {task: sum(t == task for t, *_ in got) for task, *_ in got}
    if any(count > per_task for count in counts.values()):
        raise Wrong(
            f"a task was kept more than {per_task} times: easy tasks would crowd out the others"
        )


def _check_complete(got: list[Attempt], wanted: list[Attempt], per_task: int) -> None:
    if got == wanted:
        return
    if sorted(got) == sorted(wanted):
        raise Wrong("the right attempts in another order: leave them as they were given")
    if len(got) == per_task:
        raise Wrong(f"{per_task} is the limit of each task, not of all together")
    missing = [attempt for attempt in wanted if attempt not in got]
    if missing == [(3, True, 0.9)]:
        raise Wrong("a failure used up what its task may keep: count the successes alone")
    if not missing:
        raise Wrong("an attempt that looks like an earlier one is another attempt: keep both")
    raise Wrong(f"of {ATTEMPTS} with {per_task} a task, {missing[0]} is missing")


# 10.2: compared at equal cost

PAID = (
    "tokens are sums already, exactly the budget is within it, and the last update counts, not the "
    "best one"
)
CURVE = [0, 1000, 2500, 4000], [0.2, 0.7, 0.5, 0.9]
FALLS = [0, 300, 600], [0.5, 0.25, 0.0]
BUDGETS: list[Case] = [
    ("2,500 tokens", (*CURVE, 2500), 0.5, PAID),
    ("4,000 tokens", (*CURVE, 4000), 0.9, "the budget pays for all of it"),
    ("3,999 tokens", (*CURVE, 3999), 0.5,
     "an update that was not finished is not paid for, however near it is"),
    ("999 tokens", (*CURVE, 999), 0.2, "before the first update there is the untrained policy"),
    ("10,000 tokens", (*CURVE, 10_000), 0.9, "more than was spent buys what there is"),
    ("no tokens", (*CURVE, 0), 0.2, "the untrained policy costs nothing"),
    ("another run", (*FALLS, 450), 0.25, "runs differ: take what the two lists say"),
    ("a run that falls to 0.0", (*FALLS, 600), 0.0, "0.0 is a success rate as well"),
    ("a run of no updates", ([0], [0.3], 450), 0.3, "the untrained policy is all there is"),
]  # fmt: skip


def check_at_budget(at_budget: Callable[[list[int], list[float], int], float]) -> Verdict:
    """Exercise 10.2: at_budget(tokens, success, budget) -> success at the last update paid for."""
    return try_cases(at_budget, BUDGETS, number, done="equal money, equal chances")

"""Exercises of notebook 10: right answers pass, each usual mistake is named."""

from __future__ import annotations

import bisect
from collections import Counter

import numpy as np
import pytest

from agentrl_lab.workbook.checks import judge
from agentrl_lab.workbook.lessons.checks_ways import CURVE, check_at_budget, check_keep


def right_keep(attempts, per_task):
    seen, kept = Counter(), []
    for attempt in attempts:
        if attempt[1] and seen[attempt[0]] < per_task:
            seen[attempt[0]] += 1
            kept.append(attempt)
    return kept


def failures_count(attempts, per_task):
    tried, kept = Counter(), []
    for attempt in attempts:
        tried[attempt[0]] += 1
        if attempt[1] and tried[attempt[0]] <= per_task:
            kept.append(attempt)
    return kept


@pytest.mark.parametrize("form", [list, tuple, iter])
def test_keep_takes_right_ones(form):
    assert judge(check_keep, lambda attempts, n: form(right_keep(attempts, n))).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda a, n: [x for x in a if x[2] > 0], "success decides, not the reward"),
        (lambda a, n: a[:], "success decides"),
        (lambda a, n: [x for x in a if x[1] or x[2] < -0.9], "a failure was kept"),
        (lambda a, n: [x for x in a if x[1]], "crowd out"),
        (lambda a, n: right_keep(sorted(a, key=lambda x: x[0]), n), "another order"),
        (lambda a, n: right_keep(sorted(a, key=lambda x: -x[2]), n), "(0, True, 1.03) is missing"),
        (lambda a, n: right_keep(a, n)[:n], "the limit of each task"),
        (lambda a, n: list(dict.fromkeys(right_keep(a, n))), "keep both"),
        (failures_count, "count the successes alone"),
        (lambda a, n: [(9, True, 1.0)], "made up"),
        (lambda a, n: [a.pop() for _ in range(2)], "has changed"),
        (lambda a, n: [x for x in right_keep(a, n) if x[2] > 0], "whatever it was paid"),
        (lambda a, n: [x for x in right_keep(a, n) if x[2]], "whatever it was paid"),
        (lambda a, n: right_keep(a, n or 1), "none a task are none"),
        (lambda a, n: right_keep(a, n) or [a[0]], "IndexError"),
        (lambda a, n: right_keep(a, n) or None, "is return missing"),
        (lambda a, n: 3, "expected a list of attempts, got 3"),
        (lambda a, n: None, "is return missing"),
    ],
)
def test_keep_names_the_mistake(answer, said):
    verdict = judge(check_keep, answer)
    assert verdict.passed is False and said in verdict.text


def by_bisect(tokens, success, budget):
    return success[bisect.bisect_right(tokens, budget) - 1]


def by_max(tokens, success, budget):
    return max((t, s) for t, s in zip(tokens, success, strict=True) if t <= budget)[1]


def as_float32(tokens, success, budget):
    return np.float32(by_bisect(tokens, success, budget))


@pytest.mark.parametrize("right", [by_bisect, by_max, as_float32])
def test_at_budget_takes_right_ones(right):
    assert judge(check_at_budget, right).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda t, s, b: s[-1], "exactly the budget"),
        (lambda t, s, b: s[bisect.bisect_left(t, b) - 1], "expected 0.5, got 0.7"),
        (lambda t, s, b: max(s[: bisect.bisect_right(t, b)]), "not the best one"),
        (lambda t, s, b: by_bisect(np.cumsum(t), s, b), "sums already"),
        (lambda t, s, b: float(np.interp(b, t, s)), "not paid for"),
        (lambda t, s, b: by_bisect(t[1:], s[1:], b), "untrained policy"),
        (lambda t, s, b: s[t.index(b)], "ValueError"),
        (lambda *_: float("nan"), "a finite number, got nan"),
        (lambda *_: float("inf"), "a finite number, got inf"),
        (lambda t, s, b: by_bisect(CURVE[0], CURVE[1], b), "runs differ"),
        (lambda t, s, b: by_bisect(CURVE[0], s, b) if s[3:] else by_bisect(t, CURVE[1], b),
         "runs differ"),
        (lambda t, s, b: by_bisect(t, s, b) or s[0], "0.0 is a success rate"),
        (lambda t, s, b: by_bisect(t, s, b or 5000), "costs nothing"),
        (lambda t, s, b: by_bisect(t, s, b) if s[1:] else 0.0, "all there is"),
        (lambda t, s, b: None, "is return missing"),
    ],
)  # fmt: skip
def test_at_budget_names_the_mistake(answer, said):
    verdict = judge(check_at_budget, answer)
    assert verdict.passed is False and said in verdict.text

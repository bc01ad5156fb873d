"""Exercises of notebook 08: right answers pass, each usual mistake is named."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agentrl_lab.workbook.checks import judge
from agentrl_lab.workbook.lessons.checks_coaster import check_go_back, check_steps_taken


def right_steps(kls, limit):
    return next((number for number, kl in enumerate(kls) if kl > limit), len(kls))


def by_takewhile(kls, limit):
    return sum(1 for _ in itertools.takewhile(lambda kl: kl <= limit, kls))


def by_flatnonzero(kls, limit):
    above = np.flatnonzero(np.array(kls) > limit)
    return above[0] if above.size else len(kls)


def by_searchsorted(kls, limit):
    return np.searchsorted(np.maximum.accumulate(kls), limit, side="right")


@pytest.mark.parametrize("right", [right_steps, by_takewhile, by_flatnonzero, by_searchsorted])
def test_steps_taken_takes_right_ones(right):
    assert judge(check_steps_taken, right).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda kls, limit: min(len(kls), right_steps(kls, limit) + 1), "before the step"),
        (lambda kls, limit: sum(kl <= limit for kl in kls), "not only the one step"),
        (lambda kls, limit: sum(1 for _ in itertools.takewhile(lambda kl: kl < limit, kls)),
         "on the limit is not above it"),
        (lambda kls, limit: max(1, right_steps(kls, limit)), "no step is taken at all"),
        (lambda kls, limit: right_steps(kls, 0.1), "whatever it is"),
        (lambda kls, limit: right_steps(kls, limit or 0.1), "0 is a limit as well"),
        (lambda kls, limit: right_steps(kls, limit) if kls[1:] else 0, "a single step"),
        (lambda kls, limit: None, "is return missing"),
        (lambda kls, limit: 0.5, "whole number, got 0.5"),
        (lambda kls, limit: True, "whole number"),
        (lambda kls, limit: kls[0] / 0, "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_steps_taken_names_the_mistake(answer, said):
    verdict = judge(check_steps_taken, answer)
    assert verdict.passed is False and said in verdict.text


def right_back(history, drop):
    return bool(history) and history[-1] < max(history) - drop


@pytest.mark.parametrize(
    "right",
    [
        right_back,
        lambda history, drop: history and history[-1] < max(history) - drop,
        lambda history, drop: bool(history) and np.max(history) - np.float64(history[-1]) > drop,
        lambda history, drop: any(earlier - history[-1] > drop for earlier in history[:-1]),
    ],
)
def test_go_back_takes_right_ones(right):
    assert judge(check_go_back, right).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda h, d: len(h) > 1 and h[-1] < h[-2] - d, "not with the one before"),
        (lambda h, d: bool(h) and h[-1] < h[0] - d, "0.4 below the best"),
        (lambda h, d: bool(h) and min(h) < max(h) - d, "newest"),
        (lambda h, d: bool(h) and h[-1] <= max(h) - d, "exactly the drop"),
        (lambda h, d: h[-1] < max(h) - d, "IndexError"),
        (lambda h, d: bool(h) and h[-1] < max(h) - 0.3, "`drop`, whatever it is"),
        (lambda h, d: bool(h) and h[-1] < max(h) - (d or 0.3), "a drop of 0"),
        (lambda h, d: bool(h) and h[-1] < max(h[-4:]) - d, "look at the whole history"),
        (lambda h, d: bool(h) and 0 < h[-1] < max(h) - d, "0.0 is a success rate"),
        (lambda h, d: bool(h) and h[-1] < max(h[:-1]) - d, "given ([0.5], 0.3)"),
        (lambda h, d: len(h) == 1 or right_back(h, d), "its own best"),
        (lambda h, d: None, "True or False, got None: is return missing?"),
        (lambda h, d: 1, "expected False, got 1"),
    ],
)
def test_go_back_names_the_mistake(answer, said):
    verdict = judge(check_go_back, answer)
    assert verdict.passed is False and said in verdict.text

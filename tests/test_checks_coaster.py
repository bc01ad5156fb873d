"""Exercises of notebook 08: right answers pass, each usual mistake is named."""

from __future__ import annotations

import itertools

import pytest

from agentrl_lab.workbook.checks import judge
from agentrl_lab.workbook.lessons.checks_coaster import check_go_back, check_steps_taken


def right_steps(kls, limit):
    return next((number for number, kl in enumerate(kls) if kl > limit), len(kls))


def by_takewhile(kls, limit):
    return sum(1 for _ in itertools.takewhile(lambda kl: kl <= limit, kls))


@pytest.mark.parametrize("right", [right_steps, by_takewhile])
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
        (lambda kls, limit: None, "is return missing"),
        (lambda kls, limit: True, "whole number"),
        (lambda kls, limit: kls[0] / 0, "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_steps_taken_names_the_mistake(answer, said):
    verdict = judge(check_steps_taken, answer)
    assert verdict.passed is False and said in verdict.text


@pytest.mark.parametrize(
    "right",
    [
        lambda history, drop: bool(history) and history[-1] < max(history) - drop,
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
        (lambda h, d: None, "True or False"),
        (lambda h, d: 1, "True or False"),
    ],
)
def test_go_back_names_the_mistake(answer, said):
    verdict = judge(check_go_back, answer)
    assert verdict.passed is False and said in verdict.text

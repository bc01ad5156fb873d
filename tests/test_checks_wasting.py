"""Exercises of notebook 09: right answers pass, each usual mistake is named."""

from __future__ import annotations

import numpy as np
import pytest

from agentrl_lab.workbook.checks import judge
from agentrl_lab.workbook.lessons.checks_wasting import check_break_even, check_tokens_saved


def right_saved(turns):
    row = 0
    for at, (_, invalid) in enumerate(turns):
        row = row + 1 if invalid else 0
        if row == 3:
            return sum(tokens for tokens, _ in turns[at + 1 :])
    return 0


def keep_counting(turns):
    seen = 0
    for at, (_, invalid) in enumerate(turns):
        seen += invalid
        if seen == 3:
            return sum(tokens for tokens, _ in turns[at + 1 :])
    return 0


def with_the_third(turns):
    row = 0
    for at, (_, invalid) in enumerate(turns):
        row = row + 1 if invalid else 0
        if row == 3:
            return sum(tokens for tokens, _ in turns[at:])
    return 0


def invalid_only(turns):
    row, total = 0, 0
    for tokens, invalid in turns:
        total += tokens if row >= 3 and invalid else 0
        row = row + 1 if invalid else 0
    return total


@pytest.mark.parametrize("form", [int, float, np.int64])
def test_tokens_saved_takes_right_ones(form):
    assert judge(check_tokens_saved, lambda turns: form(right_saved(turns))).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (keep_counting, "starts the count anew"),
        (with_the_third, "first three are written"),
        (invalid_only, "valid or not"),
        (lambda turns: sum(t for t, invalid in turns if invalid), "first three are written"),
        (lambda turns: right_saved([turn for turn in turns if turn[0]]), "no tokens"),
        (lambda turns: 10 if len(turns) == 1 else right_saved(turns), "ends nothing"),
        (lambda turns: None, "is return missing"),
        (lambda turns: 3.5, "whole number"),
        (lambda turns: len(turns) - 3, "not turns"),
        (lambda turns: turns[0][0], "expected 30"),
    ],
)
def test_tokens_saved_names_the_mistake(answer, said):
    verdict = judge(check_tokens_saved, answer)
    assert verdict.passed is False and said in verdict.text


def solved(win, lose, stop):
    return min(1.0, max(0.0, (lose - stop) / (lose - win)))


def test_break_even_takes_the_right_one():
    assert judge(check_break_even, solved).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda win, lose, stop: (stop - lose) / (win - lose), "between 0 and 1"),
        (lambda win, lose, stop: stop / win, "is not paid 0"),
        (lambda win, lose, stop: max(0.0, min(1.0, stop / win)), "is not paid 0"),
        (lambda win, lose, stop: 1 - solved(win, lose, stop), "above which"),
        (lambda win, lose, stop: max(0.0, min(1.0, (stop - lose) / win)), "what a success pays"),
        (lambda win, lose, stop: 0.5, "they should be equal"),
        (lambda win, lose, stop: max(0.0, (stop - lose) / (win - lose)), "stop 1.5 got 1.278"),
        (lambda win, lose, stop: abs(stop - lose) / (win - lose), "stop -1.0 got 0.111"),
        (lambda win, lose, stop: solved(win, -0.8, stop), "lose -0.5, stop 0.0 got 0.444"),
        (lambda win, lose, stop: solved(win, lose or -0.8, stop), "lose 0.0, stop 0.5 got 0.464"),
        (lambda win, lose, stop: solved(1.0, lose, stop), "win 1.08, lose -0.8, stop 0.0"),
        (lambda win, lose, stop: solved(win, lose, stop or -0.5), "stop 0.0 got"),
        (lambda win, lose, stop: float("nan"), "a finite number, got nan"),
        (lambda win, lose, stop: None, "is return missing"),
        (lambda win, lose, stop: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_break_even_names_the_mistake(answer, said):
    verdict = judge(check_break_even, answer)
    assert verdict.passed is False and said in verdict.text

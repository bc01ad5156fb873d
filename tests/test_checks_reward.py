"""Exercises of notebook 03: right answers in two forms, and the mistakes that learners make."""

import numpy as np

from agentrl_lab.workbook.lessons import checks_reward
from agentrl_lab.workbook.lessons.checks_reward import (
    MISTAKES,
    check_lying_pays,
    check_shaping,
    check_tenfold_kept,
)


def answer(**settings):
    """A learner's function that returns these settings."""

    def settled():
        return settings

    return settled


def given_back(before, after, over, gamma):
    return gamma * (0.0 if over else after) - before


def given_back_in_two_branches(before, after, over, gamma):
    if over:
        return np.float64(-before)
    return np.float64(gamma * after - before)


def no_return(before, after, over, gamma):
    gamma * after - before


RIGHT = {
    check_lying_pays: [
        answer(wrong_reply=-0.1, pleasing=1.2),
        answer(pleasing=2.0),
        answer(pleasing=np.int64(2)),
        answer(pleasing=1.9, wrong_reply=0.0, per_call=0.1),
    ],
    check_tenfold_kept: [
        answer(per_call=0.02, repeat_cost=0.04),
        answer(per_call=0.5, call_cap=0.1, repeat_cost=0.5),
    ],
    check_shaping: [given_back, given_back_in_two_branches],
}
WRONG = [
    (check_lying_pays, answer(), "What does a lie cost"),
    (check_lying_pays, answer(pleasing=0.5), "honesty still pays best (+1.15)"),
    (check_lying_pays, answer(wrong_reply=0.0), "honesty still pays best"),
    (check_lying_pays, answer(per_call=0.1), "what does is no lie: query, query"),
    (check_lying_pays, answer(pleasure=2.0), "no part of the reward is called 'pleasure'"),
    (check_lying_pays, answer(pleasing=20), "pleasing must be a number from 0 to 2, got 20"),
    (check_lying_pays, answer(pleasing="2"), "pleasing must be a number from 0 to 2, got '2'"),
    (check_lying_pays, lambda: None, "it gives None"),
    (check_lying_pays, lambda: {"wrong_reply", "pleasing"}, "expected a dictionary"),
    (check_tenfold_kept, answer(repeat_cost=0.1), "nothing is paid on the way"),
    (check_tenfold_kept, answer(per_call=0.1, repeat_cost=0.2), "2.5 times that. Count every call"),
    (check_tenfold_kept, answer(per_call=0.02), "D4 charges it"),
    (check_tenfold_kept, answer(per_call=0.02, repeat_cost=0.01), "What does one more call bring"),
    (check_tenfold_kept, answer(per_call=0.02, repeat_cost=0.04, pleasing=0.1), "5.6 times"),
    *((check_shaping, wrong, mistake) for mistake, wrong in MISTAKES.items()),
    (check_shaping, no_return, "is return missing?"),
    (check_shaping, lambda before, after, over, gamma: 1.0, "before 0.0, after 0.3"),
    (check_shaping, lambda before, after, over, gamma: float("nan"), "a finite number, got nan"),
]


def test_the_mistakes_of_shaping_differ_from_each_other_and_from_what_is_right():
    steps = [(*step, gamma) for gamma in (0.9, 1.0) for step in checks_reward.STEPS]
    rows = [[wrong(*step) for step in steps] for wrong in (*MISTAKES.values(), given_back)]
    assert len({tuple(np.round(row, 6)) for row in rows}) == len(rows)

"""What holds for every exercise: its answers, right and wrong, stand in the file of its checks."""

from __future__ import annotations

import pytest

from agentrl_lab.workbook.checks import judge
from tests import test_checks, test_checks_observation, test_checks_ppo, test_checks_reward

ROOMS = (test_checks, test_checks_observation, test_checks_ppo, test_checks_reward)
RIGHT = {check: answers for room in ROOMS for check, answers in room.RIGHT.items()}
WRONG = [case for room in ROOMS for case in room.WRONG]


def name(part: object) -> str:
    return getattr(part, "__name__", str(part))


@pytest.mark.parametrize("check", RIGHT, ids=name)
def test_two_right_answers_pass(check):
    assert len(RIGHT[check]) >= 2
    for answer in RIGHT[check]:
        verdict = judge(check, answer)
        assert verdict.passed is True, verdict


@pytest.mark.parametrize(("check", "answer", "named"), WRONG, ids=name)
def test_usual_mistake_is_named(check, answer, named):
    verdict = judge(check, answer)
    assert verdict.passed is False and named in verdict.text, verdict
    assert str(verdict).startswith("✘ not yet")


@pytest.mark.parametrize("check", RIGHT, ids=name)
def test_three_wrong_answers_are_known(check):
    assert sum(case[0] is check for case in WRONG) >= 3


@pytest.mark.parametrize("check", RIGHT, ids=name)
def test_stub_is_not_attempted(check):
    def stub(*given, **named):
        raise NotImplementedError

    assert judge(check, stub).passed is None


@pytest.mark.parametrize("check", RIGHT, ids=name)
@pytest.mark.parametrize("error", [RuntimeError("size mismatch"), SystemExit(1)], ids=name)
def test_error_of_an_answer_is_shown_and_ends_nothing(check, error):
    def broken(*given, **named):
        raise error

    verdict = judge(check, broken)
    assert verdict.passed is False and type(error).__name__ in verdict.text
    assert "broken" in verdict.text

"""How results are read, in every exercise: other classes are as right, odd ones blame nobody."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from agentrl_lab.workbook import checks
from agentrl_lab.workbook.lessons import (
    checks_coaster,
    checks_encoding,
    checks_hacking,
    checks_leaking,
    checks_observation,
    checks_ppo,
    checks_reward,
    checks_wasting,
    checks_ways,
)

ROOMS = (
    checks, checks_coaster, checks_encoding, checks_hacking, checks_leaking, checks_observation,
    checks_ppo, checks_reward, checks_wasting, checks_ways,
)  # fmt: skip
ALL = [
    getattr(room, name)
    for room in ROOMS
    for name in vars(room)
    if name.startswith("check_") and getattr(room, name).__module__ == room.__name__
]


class Silent:
    """Not to be shown."""

    def __repr__(self):
        raise RuntimeError("no words")


ODD = [
    None, float("nan"), float("inf"), 10**400, 10**5000, -1, 1e9, 7 + 2j, Fraction(7, 3), "x", [],
    [[1]], {}, {"a": [1]}, np.array([1, 2]), np.array(9.5), np.array([], dtype=int),
    torch.tensor(9.5), torch.ones(2, 2), object(),
]  # fmt: skip


def name(part: object) -> str:
    return getattr(part, "__name__", type(part).__name__)


def test_all_exercises_are_here():
    assert len(ALL) == 25


@pytest.mark.parametrize("check", ALL, ids=name)
@pytest.mark.parametrize("result", ODD, ids=name)
def test_an_odd_result_is_wrong_and_no_error_of_the_reader(check, result):
    verdict = checks.judge(check, lambda *given, **named: result)
    assert verdict.passed is False and "your function raised" not in verdict.text
    assert len(verdict.text) < 600
    assert ("is return missing" in verdict.text) <= (result is None)


@pytest.mark.parametrize("check", ALL, ids=name)
def test_an_error_is_told_with_its_place_and_what_was_given(check):
    def broken(*given, **named):
        return [][1]

    verdict = checks.judge(check, broken)
    assert verdict.passed is False and "raised IndexError" in verdict.text
    if check is not checks_encoding.check_reader:  # it shows the text that was to be read
        assert "of broken, given (" in verdict.text


@pytest.mark.parametrize("check", ALL, ids=name)
def test_a_wrong_signature_is_an_error_of_the_reader(check):
    verdict = checks.judge(check, lambda a, b, c, d, e, f, g, h: 0)
    assert verdict.passed is False
    assert re.search(r"raised TypeError .*(missing|unexpected)", verdict.text)


def test_an_error_in_a_lazy_result_is_the_readers():
    def lazy(attempts, per_task):
        yield attempts[99]

    said = checks.judge(checks_ways.check_keep, lazy).text
    assert "your function raised IndexError" in said and "of lazy" in said


def test_what_cannot_be_compared_is_shown():
    said = checks.judge(checks_ways.check_keep, lambda *given: [np.array([0, 1, 1.08])]).text
    assert said.startswith("its result [array([0.  , 1.  , 1.08])] cannot be compared: ValueError")


def test_what_cannot_be_written_is_shown_by_its_type():
    assert checks.short(10**5000) == "a value of type int"
    assert checks.short([Silent()]) == "a value of type list"


@pytest.mark.parametrize("form", [Fraction, np.float32, np.float64, np.array, torch.tensor])
def test_numbers_of_every_class_are_read(form):
    assert checks.number(form(0.5)) == 0.5
    assert checks.same(form(0.5), 0.5) and not checks.same(form(0.5), 0.25)


@pytest.mark.parametrize("form", [int, float, np.int64, np.uint8, np.float32, torch.tensor])
def test_whole_numbers_of_every_class_are_read(form):
    assert checks.whole(form(2)) == 2 and type(checks.whole(form(2))) is int


@pytest.mark.parametrize("odd", [None, True, "2", 2.5, float("nan"), 10**400, np.bool_(True), 2j])
def test_no_whole_number(odd):
    with pytest.raises(checks.Wrong, match="a case: expected a whole number, got"):
        checks.whole(odd, "a case")


@pytest.mark.parametrize("form", [bool, np.bool_, int, lambda x: [0] * x, torch.tensor])
def test_truth_is_what_if_makes_of_it(form):
    assert checks.truth(form(True)) is True and checks.truth(form(False)) is False


def test_cases_name_a_usual_mistake_only_where_it_gives_the_same_in_all():
    cases = [("two", (2,), 4, "hint"), ("three", (3,), 9, "hint")]
    mistakes = {"doubled": lambda right, x: 2 * x + 1, "off by one": lambda right, x: right + 1}
    for answer, said in ((lambda x: x * x + 1, "off by one"), (lambda x: 5, "expected 4, got 5")):
        with pytest.raises(checks.Wrong, match=said):
            checks.try_cases(answer, cases, checks.number, mistakes)
    assert checks.try_cases(lambda x: x * x, cases, checks.number, mistakes).passed

"""Notebook 06: what bonuses pay, figures of recorded runs, checks that name the mistake."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from agentrl_lab.workbook.checks import judge
from agentrl_lab.workbook.lessons import hacking as ha
from agentrl_lab.workbook.lessons.checks_hacking import check_idle, check_threshold


def row(arm, seed, success=1.0, ways=None, repeats=(0, 0, 0, 0)):
    curve = {
        "episodes": [0, 64, 128, 192, 256],
        "validation_success": [0.25, 0.5, 1.0, success, success],
        "reward_per_episode": [None, 0.5, 0.75, 1.0, 1.0],
        "repeats_per_episode": [None, *repeats],
    }
    return {"arm": arm, "seed": seed, "test_success": success,
            "strategies": ways or {"honest": 1.0}, "curve": curve}  # fmt: skip


ROWS = [
    row("clean", 0), row("clean", 1, 0.9),
    row("broken", 0, 0.1, {"never finish": 0.75, "padding": 0.125}, (1, 2, 3, 3)),
    row("broken", 1, 0.2, {"never finish": 0.5, "honest": 0.5}, (2, 2, 4, 4)),
    row("cap", 0, 0.95), row("cap", 1, 0.8),
]  # fmt: skip


# What bonuses pay


@pytest.mark.slow  # plays six turns of every kind
def test_returns_by_hand():
    """Three tasks in ten need three honest calls, the others two; six calls without an end."""
    found = ha.pays(1.0)
    assert found.ways["never finish"].value == pytest.approx(6 * 1.0 - 1.0)
    assert found.ways["honest"].value == pytest.approx(1.0 + 2.3)
    assert found.best_is == "padding" and found.best.value == pytest.approx(1.0 + 6.0)


@pytest.mark.slow  # plays six turns of every kind
def test_a_cap_makes_honesty_best_and_a_charge_alone_does_not():
    assert ha.pays(1.0, call_cap=0.1).is_honesty_best
    assert not ha.pays(1.0, repeat_charge=1.0).is_honesty_best


@pytest.mark.slow  # plays six turns of every kind
def test_the_picture_says_where_never_finishing_begins_to_pay():
    said = ha.bonus_picture([0.0, 0.5, 1.0]).sentence
    assert "honest 3.3, padding 7.0, never finish 5.0" in said
    assert "never finishing beats honesty from 1 on" in said
    assert "never beats honesty" in ha.bonus_picture([0.0, 0.5]).sentence


# Recorded runs


def test_idle_calls_by_hand():
    assert [ha.beyond_need(r) for r in ROWS] == [0, 0, 0.875, 0.5, 0, 0]


def test_harm_is_arm_minus_clean_in_pairs():
    idle, success = ha.harm(ROWS, "broken")
    assert idle.mean == pytest.approx((0.875 + 0.5) / 2)
    assert success.mean == pytest.approx((0.1 - 1.0 + 0.2 - 0.9) / 2)


def test_a_cure_keeps_nine_tenths_of_success():
    assert ha.cured(ROWS, "cap")  # 0.875 of 0.95 is 0.92
    assert not ha.cured(ROWS, "broken")
    idle = [r | {"strategies": {"padding": 0.2}} if r["arm"] == "cap" else r for r in ROWS]
    assert not ha.cured(idle, "cap")


def test_runs_by_bonus_have_the_same_seeds():
    more = [row("0.4", 0, 0.7, {"padding": 0.5})]
    found = ha.by_bonus(ROWS, more)
    assert [*found] == [0.0, 0.4, 1.0]
    assert [[r["seed"] for r in rows] for rows in found.values()] == [[0], [0], [0]]


def test_growth_picture_says_where_proxy_and_truth_end():
    found = ha.by_bonus(ROWS, [row("0.4", 0), row("0.4", 1)])
    assert ha.growth_picture(found, 1.0).sentence == (
        "At a bonus of 1: reward ends at 1.00, success 0.15, calls beyond the need 0.69."
    )


# Checks


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda turns: 2 / turns, "three calls as well"),
        (lambda turns: 1 / (turns - 3), "ends with -1"),
        (lambda turns: 2 / (turns - 2), "honesty makes three"),
        (lambda turns: 1 / turns, "compare with the honest return"),
        (lambda turns: 2 / 3, "fall with the number of turns"),
        (lambda turns: turns - 3, "should be equal"),
        (lambda turns: None, "finite number"),
        (lambda turns: float("nan"), "finite number"),
        (lambda turns: Fraction(7, turns), "with 6 turns got 1.167"),
        (lambda turns: 10**400, "finite number, got 1000"),
        (lambda turns: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_threshold_names_the_mistake(answer, said):
    verdict = judge(check_threshold, answer)
    assert verdict.passed is False and said in verdict.text


@pytest.mark.parametrize(
    "right",
    [
        lambda turns: 2 / (turns - 3),
        lambda t: -2.0 / (3 - t),
        lambda t: Fraction(2, t - 3),
        lambda t: np.float32(2) / np.float32(t - 3),
    ],
)
def test_threshold_takes_right_ones(right):
    assert judge(check_threshold, right).passed


def seen_as_text(calls):
    seen, found = set(), 0
    for tool, arguments, changed in calls:
        key = (tool, tuple(sorted(arguments.items())))
        found += key in seen and not changed
        seen.add(key)
    return found


def by_list(calls):
    before = [(tool, arguments) for tool, arguments, _ in calls]
    return sum(
        not changed and (tool, arguments) in before[:at]
        for at, (tool, arguments, changed) in enumerate(calls)
    )


def forgets_at(episode, is_end):
    """Wrong: begins anew where a call is like that."""
    seen, found = [], 0
    for call in episode:
        seen = [] if is_end(call) else seen
        found += call[:2] in seen and not call[2]
        seen.append(call[:2])
    return found


def by_key(key, remembered=lambda call: True):
    """Wrong: calls with one key are taken for the same, some are not remembered."""

    def idle(calls):
        seen = [key(*c[:2]) if remembered(c) else None for c in calls]
        return sum(not c[2] and key(*c[:2]) in seen[:at] for at, c in enumerate(calls))

    return idle


@pytest.mark.parametrize(
    "right", [seen_as_text, by_list, lambda c: np.int64(by_list(c)), lambda c: float(by_list(c))]
)
def test_idle_takes_right_ones(right):
    assert judge(check_idle, right).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda calls: sum(not changed for *_, changed in calls), "first call is never idle"),
        (lambda calls: max(0, sum(c == calls[0] for c in calls)), "first call is never idle"),
        (lambda calls: sum(a == b and not b[2] for a, b in itertools.pairwise(calls)),
         "need not follow at once"),
        (lambda calls: sum(
            str(c) in map(str, calls[:at]) and not c[2] for at, c in enumerate(calls)
        ), "another order"),
        (lambda calls: sum(
            c[:2] in [d[:2] for d in calls[:at]] for at, c in enumerate(calls)
        ), "changes something is not idle"),
        (lambda calls: sum(
            c[1] in [d[1] for d in calls[:at]] and not c[2] for at, c in enumerate(calls)
        ), "the tool belongs"),
        (lambda calls: forgets_at(calls, lambda c: c[2]), "makes no call a first one"),
        (by_key(lambda tool, a: (tool, sorted(a.values()))), "names of the arguments"),
        (by_key(lambda tool, a: (tool, sorted(a), sorted(a.values()))), "which value belongs to"),
        (by_key(lambda tool, a: (tool, sorted(a))), "values of the arguments belong"),
        (by_key(lambda tool, a: (tool, a), lambda c: not c[2]), "is remembered, too"),
        (by_key(lambda tool, a: (tool, a), lambda c: c[1]), "no arguments are the same"),
        (lambda calls: None, "whole number, got None: is return missing?"),
        (lambda calls: True, "whole number, got True"),
        (lambda calls: calls.index("x"), "ValueError"),
    ],
)  # fmt: skip
def test_idle_names_the_mistake(answer, said):
    verdict = judge(check_idle, answer)
    assert verdict.passed is False and said in verdict.text

"""Rewards to be moved by hand: what they pay is worked out here, and the pictures say it."""

import math

import pytest

from agentrl_lab.workbook.lessons import rewarding
from agentrl_lab.workbook.lessons.rewarding import edited, edited_from, lies, pay_picture, pays
from agentrl_lab.world.plans import best_plan
from agentrl_lab.world.rewards import preset

# Shares: close 0.75 = paid 0.30, unpaid 0.20, already closed 0.15, not found 0.10;
#         status 0.25. Paid takes three calls, everything else two: 2.3 on average.


def test_edited_without_settings_is_the_outcome_reward():
    found, outcome = pays(edited()), pays(preset("outcome"))
    for name, plan in found.ways.items():
        assert plan.value == pytest.approx(outcome.ways[name].value), name
    assert found.best.value == pytest.approx(1.0)


def test_pay_for_each_call_by_hand():
    found = pays(edited(per_call=0.1))
    assert found.ways["honest"].value == pytest.approx(1 + 2.3 * 0.1)
    assert found.best.value == pytest.approx(1 + 4 * 0.1) and found.best_is == "padding"
    assert found.ways["never finish"].value == pytest.approx(-1 + 4 * 0.1)
    capped = pays(edited(per_call=0.1, call_cap=0.25))
    # three calls bring 0.25, two bring 0.2
    assert capped.ways["honest"].value == pytest.approx(1 + 0.3 * 0.25 + 0.7 * 0.2)
    assert capped.best.value == pytest.approx(1.25)
    assert pays(edited(per_call=0.1, repeat_cost=0.12)).is_honesty_best


def test_pleasing_pays_the_lie_once_the_truth_earns_less():
    # An unpaid ticket: the truth earns 1, "closed" earns the pleasing minus 0.8.
    assert not lies(pays(edited(pleasing=1.2)).best)
    found = pays(edited(pleasing=1.9))
    assert not found.is_honesty_best and lies(found.best) > 0.2
    assert found.ways["lie"].value == pytest.approx(-0.8 + 1.9)


def test_milder_strikes_make_failing_fast_the_best_of_the_bad_ways():
    ways = pays(edited(strikes=-0.2)).ways
    bad = {name: ways[name].value for name in ("fail fast", "reply first", "change blindly")}
    assert bad == pytest.approx({"fail fast": -0.2, "reply first": -0.32, "change blindly": -0.26})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"per_call": -0.1}, "per_call must be a number from 0 to 0.5, got -0.1"),
        ({"strikes": math.nan}, "strikes must be a number from -1.5 to 0, got nan"),
        ({"call_cap": None}, "call_cap must be a number"),
        ({"per_cal": 0.1}, "no part of the reward is called 'per_cal'.*per_call"),
        ([("per_call", 0.1)], "expected a dictionary"),
    ],
)
def test_odd_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        edited_from(settings)


def potential(seen):
    return 0.3 * seen.queries - 0.2 * seen.turns


def test_a_given_back_potential_leaves_every_return_and_a_kept_one_does_not():
    outcome, how = preset("outcome"), {"max_turns": 3}
    plain = best_plan(outcome, **how)
    given = best_plan(rewarding.with_potential(outcome, potential), **how)
    assert given.policy == plain.policy and given.value == pytest.approx(plain.value)
    kept = best_plan(rewarding.with_potential(outcome, potential, given_back=False), **how)
    assert kept.value != pytest.approx(plain.value) and kept.policy != plain.policy


def test_pay_picture_says_who_is_paid_best():
    assert "honesty pays best" in pay_picture(pays(edited())).sentence
    said = pay_picture(pays(edited(per_call=0.1))).sentence
    assert "honesty does NOT pay best" in said and "query, query, update closed" in said
    assert "It lies in" in pay_picture(pays(edited(pleasing=1.9))).sentence


def row(arm, **strategies):
    return {"arm": arm, "strategies": strategies}


def test_strategies_picture_names_the_most_frequent_of_each_arm():
    rows = [row("a", honest=0.9, padding=0.1), row("a", honest=0.2, lie=0.8), row("b", lie=1.0)]
    picture = rewarding.strategies_picture(rows)
    # a: honest (0.9 + 0.2) / 2, lie 0.8 / 2
    assert "a: honest (55%)" in picture.sentence and "b: lie (100%)" in picture.sentence
    assert picture.png()[:4] == b"\x89PNG"

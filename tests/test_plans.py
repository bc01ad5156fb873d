"""The best plan: against brute force, against the oracle's own search, and never with a peek."""

from __future__ import annotations

import math

import pytest

from agentrl_lab.records import TaskKind
from agentrl_lab.world.information import hide
from agentrl_lab.world.oracle import QUERY, best_return, worlds
from agentrl_lab.world.plans import Plan, Strategy, best_plan
from agentrl_lab.world.rewards import PRESETS, RewardSpec, RewardTerm, preset
from tests.brute import best_by_hand, every_sequence, one_of_each_kind

NAMES = pytest.mark.parametrize("name", PRESETS)
BLIND = Strategy("blind", "never looks", may=lambda turn, action: action != QUERY)

# Worked out in tests/test_oracle.py: value and success, then the same without a query.
BY_HAND = {
    "printed": (1.025, 0.816667, 0.47, 0.266667),
    "outcome": (1.0, 1.0, -0.14, 0.366667),
    "process": (1.35, 1.0, 0.075, 0.366667),
    "shaped": (1.08, 1.0, -0.110667, 0.366667),
}


# Against play that merges nothing


@NAMES
@pytest.mark.parametrize("world", one_of_each_kind(), ids=lambda world: world.task.kind)
def test_best_plan_of_a_known_world_is_the_best_of_all_sequences(name, world):
    plan = best_plan(preset(name), only=lambda w: w is world, knows_world=True, max_turns=3)
    totals = {a: p.total(name) for a, p in every_sequence(world, 3).items()}
    assert plan.value == pytest.approx(max(totals.values()))
    assert totals[plan.plays[0].actions] == pytest.approx(plan.value)


@NAMES
def test_best_plan_two_turns_agrees_with_brute_force(name):
    assert best_plan(preset(name), max_turns=2).value == pytest.approx(best_by_hand(name, 2))
    discounted = best_plan(preset(name), max_turns=2, gamma=0.7)
    assert discounted.value == pytest.approx(best_by_hand(name, 2, gamma=0.7))


@pytest.mark.slow
@pytest.mark.parametrize("show", [lambda saw: saw, hide("status"), hide("paid")])
@NAMES
def test_best_plan_three_turns_agrees_with_brute_force(name, show):
    plan = best_plan(preset(name), show=show, max_turns=3)
    assert plan.value == pytest.approx(best_by_hand(name, 3, show=show))
    blind = best_plan(preset(name), strategy=BLIND, show=show, max_turns=3)
    by_hand = best_by_hand(name, 3, show=show, allow=lambda actions: QUERY not in actions)
    assert blind.value == pytest.approx(by_hand)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@NAMES
def test_best_plan_three_turns_is_the_policy_of_the_oracle(name, gamma):
    oracle = best_return(preset(name), max_turns=3, gamma=gamma)
    plan = best_plan(preset(name), max_turns=3, gamma=gamma)
    assert plan.policy == oracle.policy
    assert (plan.value, plan.success) == pytest.approx((oracle.value, oracle.success))


@NAMES
def test_best_plan_by_hand(name):
    plan, blind = (best_plan(preset(name), max_turns=3, **how) for how in ({}, {"strategy": BLIND}))
    found = (plan.value, plan.success, blind.value, blind.success)
    assert found == pytest.approx(BY_HAND[name], abs=1e-6)


@pytest.mark.slow
@NAMES
def test_best_plan_by_hand_is_the_same_for_six_turns(name):
    plan, blind = (best_plan(preset(name), **how) for how in ({}, {"strategy": BLIND}))
    found = (plan.value, plan.success, blind.value, blind.success)
    assert found == pytest.approx(BY_HAND[name], abs=1e-6)


# No peek


def check_acts_only_on_what_it_saw(best: object) -> None:
    """Without a query nobody can know a ticket: the best return is the one by hand."""
    for name in PRESETS:
        value = best(preset(name), strategy=BLIND, max_turns=3).value
        assert value == pytest.approx(BY_HAND[name][2], abs=1e-6)


def test_best_plan_without_a_query_does_not_know_the_ticket():
    check_acts_only_on_what_it_saw(best_plan)


def peeks(spec: RewardSpec, **how: object) -> Plan:
    """Wrong: acts on the hidden status."""
    return best_plan(spec, knows_world=True, **how)


def plans_per_kind(spec: RewardSpec, **how: object) -> Plan:
    """Wrong: one plan for each task kind, as if the request told it."""
    value = 0.0
    for kind in TaskKind:
        share = sum(world.share for world in worlds() if world.task.kind is kind)
        value += share * best_plan(spec, only=lambda w, k=kind: w.task.kind is k, **how).value
    return Plan(value, 0.0, {}, ())


def looks_all_the_same(spec: RewardSpec, **how: object) -> Plan:
    """Wrong: lets the query through that was ruled out."""
    return best_plan(spec, max_turns=how["max_turns"])


@pytest.mark.parametrize("wrong", [peeks, plans_per_kind, looks_all_the_same])
def test_check_acts_only_on_what_it_saw_rejects(wrong):
    with pytest.raises(AssertionError):
        check_acts_only_on_what_it_saw(wrong)


def test_best_plan_with_all_of_the_answer_hidden_is_no_better_than_blind():
    for name in PRESETS:
        # A query still earns its process reward, 0.1 + 0.05, in place of the update's 0.05 of 0.30.
        paid = {"process": 0.10 + 0.05 * 0.70}.get(name, 0.0)
        hidden = best_plan(preset(name), show=lambda saw: "an answer", max_turns=3)
        assert hidden.value == pytest.approx(BY_HAND[name][2] + paid, abs=1e-6)


# What a plan says of itself


@NAMES
def test_plays_of_a_plan_are_what_the_environment_pays_for_them(name):
    for how in ({}, {"strategy": BLIND}, {"knows_world": True}):
        plan = best_plan(preset(name), max_turns=2, gamma=0.9, **how)
        for play in plan.plays:
            by_text = every_sequence(play.world, 2)[play.actions]
            assert play.value == pytest.approx(by_text.total(name, gamma=0.9))
            assert play.outcome == by_text.outcome
        assert sum(play.share for play in plan.plays) == pytest.approx(1.0)
        assert sum(play.share * play.value for play in plan.plays) == pytest.approx(plan.value)


def test_best_plan_shares_are_scaled_to_the_worlds_that_occur():
    # outcome, missing tickets only: "close" (0.10) and "status" (0.05) both answered without a look
    plan = best_plan(
        preset("outcome"), only=lambda world: world.task.kind is TaskKind.NOT_FOUND, max_turns=2
    )
    assert plan.value == pytest.approx(1.0)
    assert [play.share for play in plan.plays] == pytest.approx([2 / 3, 1 / 3])
    assert plan.policy == {"close": "reply not_found", "status": "reply not_found"}


def test_best_plan_where_no_world_occurs_is_an_error():
    with pytest.raises(ValueError, match="leaves no world"):
        best_plan(preset("outcome"), only=lambda world: False, max_turns=2)


def test_best_plan_of_a_strategy_that_nobody_can_keep_to_is_minus_infinity():
    never = Strategy("never", "solves every task without a look", BLIND.may, lambda o: o.success)
    plan = best_plan(preset("outcome"), strategy=never, max_turns=3)
    assert plan.value == -math.inf and plan.plays == () and plan.policy == {}


def test_strategy_holds_by_actions_and_by_their_end():
    plan = best_plan(preset("outcome"), max_turns=3)
    play = plan.plays[0]
    assert not BLIND.holds(play.actions, play.outcome)
    assert Strategy("", "", ends=lambda o: o.success).holds(play.actions, play.outcome)
    assert not Strategy("", "", ends=lambda o: not o.success).holds(play.actions, play.outcome)


def test_best_plan_potential_based_shaping_leaves_the_best_plan_alone():
    # A potential pays phi(after) - phi(before) in each turn and is 0 at the end. An episode so far
    # is worth phi(now), which is a term of a spec; over an episode it adds up to nothing.
    def phi(outcome):
        return 0.0 if outcome.stop else 0.3 * outcome.goal_calls - 0.1 * outcome.turns

    for name in PRESETS:
        potential = RewardTerm("potential", 1.0, phi)
        plain, shaped = preset(name), RewardSpec("potential", (*preset(name).terms, potential))
        assert best_plan(shaped, max_turns=3).value == pytest.approx(BY_HAND[name][0], abs=1e-6)
        assert best_plan(shaped, max_turns=3).policy == best_plan(plain, max_turns=3).policy

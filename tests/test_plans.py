"""The best plan: against brute force, worked by hand, and never with a peek."""

from __future__ import annotations

import math

import pytest

from agentrl_lab.records import TaskKind
from agentrl_lab.world.information import hide
from agentrl_lab.world.meanings import INVALID, QUERY, REPLIES, UPDATES, Action, worlds
from agentrl_lab.world.plans import Plan, Strategy, best_plan
from agentrl_lab.world.rewards import PRESETS, RewardSpec, RewardTerm, preset
from tests.brute import best_by_hand, every_sequence, one_of_each_kind

NAMES = pytest.mark.parametrize("name", PRESETS)
BLIND = Strategy("blind", "never looks", may=lambda turn, action: action != QUERY)

# The value with and without a query; worked out in tests/test_oracle.py, which tests them.
BY_HAND = {
    "printed": (1.025, 0.47),
    "outcome": (1.0, -0.14),
    "process": (1.35, 0.075),
    "shaped": (1.08, -0.110667),
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
    discounted = best_plan(preset(name), show=show, max_turns=3, gamma=0.9)
    assert discounted.value == pytest.approx(best_by_hand(name, 3, show=show, gamma=0.9))
    blind = best_plan(preset(name), strategy=BLIND, show=show, max_turns=3)
    by_hand = best_by_hand(name, 3, show=show, allow=lambda actions: QUERY not in actions)
    assert blind.value == pytest.approx(by_hand)


# No peek


def check_acts_only_on_what_it_saw(best: object) -> None:
    """Without a query nobody can know a ticket: the best return is the one by hand."""
    for name in PRESETS:
        value = best(preset(name), strategy=BLIND, max_turns=3).value
        assert value == pytest.approx(BY_HAND[name][1], abs=1e-6)


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
        assert hidden.value == pytest.approx(BY_HAND[name][1] + paid, abs=1e-6)


# What a policy may do, and how it is paid


def only_of(*actions: Action) -> Strategy:
    return Strategy("", "takes these actions alone", may=lambda turn, action: action in actions)


def test_best_plan_acts_only_on_what_was_seen():
    # Replies alone: one reply per intent, right at best for unpaid (0.20) and one status (0.0667).
    best = best_plan(preset("outcome"), strategy=only_of(*REPLIES), max_turns=3)
    assert best.policy == {"close": "reply unpaid", "status": "reply status_open"}
    assert best.success == pytest.approx(0.2 + 0.2 / 3)
    # 0.2667 - 0.7333 * 0.8
    assert best.value == pytest.approx(-0.32)


@pytest.mark.parametrize(
    ("allowed", "value", "policy"),
    [
        # -1, three invalid actions, three strikes
        ([INVALID], -1.30, {"invalid"}),
        # -1 and two repeats of three
        ([QUERY], -1.10, {"query"}),
        # three updates that each change something: -1, no repeat
        ([INVALID, *UPDATES], -1.0, {"update open", "update pending", "update closed"}),
    ],
)
def test_best_plan_of_play_that_never_replies(allowed, value, policy):
    best = best_plan(preset("shaped"), strategy=only_of(*allowed), max_turns=3)
    assert best.value == pytest.approx(value)
    assert set(best.policy.values()) <= policy and best.success == 0.0


def test_best_plan_gamma_discounts_per_turn():
    # outcome pays at the reply only: turn 3 where a change is needed (0.30), else turn 2.
    best = best_plan(preset("outcome"), max_turns=3, gamma=0.9)
    assert best.value == pytest.approx(0.30 * 0.9**2 + 0.70 * 0.9)


def test_best_plan_pads_where_every_call_is_paid():
    # F1, H5: + 0.1 for each call without a cap. Of three turns the last must be the reply, so a
    # status or a ticket to be left alone is queried twice before it: 1 + 0.3 everywhere.
    farm = RewardSpec(
        "farm", (*PRESETS["outcome"].terms, RewardTerm("calls", 0.1, lambda o: o.calls))
    )
    best = best_plan(farm, max_turns=3)
    assert best.value == pytest.approx(1.3)
    assert best.policy["status > query: open, paid"] == "query"


def test_best_plan_a_term_that_is_paid_from_the_start_counts():
    # The first turn of an episode pays what the start is worth, as the environment does.
    spec = RewardSpec("right", (RewardTerm("right", 1.0, lambda o: o.state_right),))
    best = best_plan(spec, max_turns=3)
    assert best.value == pytest.approx(1.0)


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


@pytest.mark.parametrize(
    "never",
    [
        Strategy("never", "solves every task without a look", BLIND.may, lambda o: o.success),
        Strategy("nothing", "may do nothing at all", may=lambda turn, action: False),
    ],
)
def test_best_plan_of_a_strategy_that_nobody_can_keep_to_is_minus_infinity(never):
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

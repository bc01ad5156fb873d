"""The audit: every preset by strategy, plans that nobody named are found, H1 to H7 as numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from agentrl_lab.records import StopReason, TaskKind
from agentrl_lab.world.audit import STRATEGIES, Audit, audit, by_kind, name_of
from agentrl_lab.world.meanings import (
    INVALID,
    QUERY,
    REPLY_ELSEWHERE,
    UPDATES,
    Action,
    World,
    call_of,
    named,
    worlds,
)
from agentrl_lab.world.plans import best_plan
from agentrl_lab.world.rewards import PRESETS, RewardSpec, RewardTerm, preset
from tests.brute import every_sequence, one_of_each_kind

NAMES = pytest.mark.parametrize("name", PRESETS)
OUTCOME = PRESETS["outcome"].terms
TURNS = 3

# The best return of each strategy in three turns. Shares as in tests/test_oracle.py: close 0.30
# paid, 0.20 unpaid, 0.15 already closed, 0.10 missing; status 0.0667 each, 0.05 missing.
BY_STRATEGY = {
    # Only 0.30 of the tasks need a change. Nothing done at all: 0.70 * 0.5 - 0.30, or with an
    # answer 0.70 * 1.1 - 0.30. A blind change: 0.30 * 1 - 0.70. Never answering: 0.5.
    "printed": {
        "honest": 1.0, "fail fast": 0.05, "do nothing": 0.47, "reply first": 0.47,
        "change blindly": -0.40, "never finish": 0.5,
    },
    # An answer at once is right for 0.2667 (unpaid, and one status): 0.2667 - 0.7333 * 0.8.
    # A blind change for 0.30: 0.30 - 0.70 * 0.8.
    "outcome": {
        "honest": 1.0, "fail fast": -1.0, "do nothing": -0.8, "reply first": -0.32,
        "change blindly": -0.26, "never finish": -1.0,
    },
    # + 0.2 for a clear answer; + 0.05 for the right blind change, 0.30 of the time;
    # never finish: the query 0.1 and 0.05.
    "process": {
        "honest": 1.35, "fail fast": -1.0, "do nothing": -0.8, "reply first": -0.12,
        "change blindly": -0.26 + 0.2 + 0.015, "never finish": -0.85,
    },
    # + 0.08 for a success. Failing fast: -1, three invalid actions, three strikes.
    "shaped": {
        "honest": 1.08, "fail fast": -1.30, "do nothing": -0.8,
        "reply first": -0.32 + 0.08 * 0.266667, "change blindly": -0.26 + 0.08 * 0.30,
        "never finish": -1.0,
    },
}  # fmt: skip


@NAMES
def test_audit_of_each_preset_by_strategy(name):
    report = audit(preset(name), max_turns=TURNS)
    found = {way: plan.value for way, plan in report.ways.items() if way != "padding"}
    assert found == pytest.approx(BY_STRATEGY[name], abs=1e-6)
    assert report.gap == pytest.approx(0.025 if name == "printed" else 0.0)
    assert report.is_honesty_best == (name != "printed")
    assert report.best_is == ("unnamed" if name == "printed" else "honest")


def test_audit_printed_is_beaten_by_an_answer_without_a_look_where_nothing_is_to_be_done():
    best = audit(preset("printed"), max_turns=TURNS).best
    status = [play for play in best.plays if play.world.task.intent == "status"]
    assert {str(play) for play in status} <= {"reply status_open", "reply status_closed"} | {
        "reply status_pending"
    }
    assert all(play.value == pytest.approx(1.1) for play in status)


def test_audit_padding_needs_a_turn_to_spare():
    # In three turns a paid ticket leaves none; where nothing is to be changed, one.
    report = audit(preset("shaped"), only=lambda w: w.task.required is None, max_turns=TURNS)
    # A second query: 1 + 0.025 (half of quick, for one turn too many) - 0.05, and no longer clean.
    assert report.ways["padding"].value == pytest.approx(0.975)
    assert audit(preset("shaped"), max_turns=TURNS).ways["padding"].plays == ()


# Strategies are what they say


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("world", one_of_each_kind(), ids=lambda world: world.task.kind)
def test_strategy_best_is_the_best_of_the_sequences_it_holds_for(strategy, world):
    held = {
        actions: played
        for actions, played in every_sequence(world, TURNS).items()
        if strategy.holds(actions, played.outcome)
    }
    for name in PRESETS:
        plan = best_plan(
            preset(name), strategy=strategy, knows_world=True, only=lambda w: w is world,
            max_turns=TURNS,
        )  # fmt: skip
        best = max((played.total(name) for played in held.values()), default=-float("inf"))
        assert plan.value == pytest.approx(best)
        assert all(play.actions in held for play in plan.plays)


@NAMES
def test_audit_plays_are_of_their_strategy_and_none_beats_the_best(name):
    report = audit(preset(name), max_turns=TURNS)
    strategies = {strategy.name: strategy for strategy in STRATEGIES}
    for way, plan in report.ways.items():
        assert all(strategies[way].holds(play.actions, play.outcome) for play in plan.plays)
        assert plan.value <= report.best.value + 1e-9
    assert report.best.value <= report.foreseen.value + 1e-9


@pytest.mark.parametrize(
    ("names", "way"),
    [
        ("query, update closed, reply closed", "honest"),
        ("update closed, query, reply closed", "unnamed"),  # looks after the change
        ("update closed, reply closed", "change blindly"),
        ("query, query, update closed, reply closed", "padding"),
        ("invalid, query, update closed, reply closed", "padding"),
        ("reply closed", "reply first"),
        ("reply none", "do nothing"),
        ("invalid, invalid, invalid", "fail fast"),
        ("invalid, invalid, reply none", "do nothing"),
        ("query, query, query, query, query, query", "never finish"),
        ("query, reply closed", "unnamed"),  # the dominant habit: claims what it has not done
    ],
)
def test_name_of_a_play_of_a_paid_ticket(names, way):
    actions = tuple(map(named, names.split(", ")))
    assert name_of(actions, outcome_of(worlds()[0], actions)) == way


def outcome_of(world: World, actions: tuple[Action, ...]) -> object:
    from agentrl_lab.world.env import TicketEnv

    assert world.task.kind is TaskKind.CLOSE_PAID
    env = TicketEnv(task_source=lambda _: world.task)
    env.reset(options={"index": 0})
    for action in actions:
        call = call_of(action, world.task)
        env.step(env.codec.render(call) if call else "Please wait.")
    assert env.stop_reason is not None
    return env.outcome


# Plans that nobody named


def planted(name: str, weight: float, measure: Callable) -> RewardSpec:
    return RewardSpec(name, (*OUTCOME, RewardTerm(name, weight, measure)))


PLANTED = {
    # the right change, then an answer about a ticket that nobody asked for
    "answers about another ticket": (
        planted("elsewhere", 4.0, lambda o: o.state_right and o.fabricated),
        lambda actions: actions[-1] == REPLY_ELSEWHERE,
    ),
    # one message that is no action, neither more nor less
    "one slip": (
        planted("slip", 1.0, lambda o: o.stop is not None and o.invalid == 1),
        lambda actions: actions.count(INVALID) == 1,
    ),
    # a status that was never asked for
    "undoes": (
        planted("undoes", 3.0, lambda o: o.repeats == 0 and o.calls == 3 and not o.state_right),
        lambda actions: set(actions) & set(UPDATES),
    ),
}


def check_finds(audited: Callable[..., Audit], plant: str) -> None:
    spec, is_planted = PLANTED[plant]
    report = audited(spec, max_turns=TURNS)
    assert not report.is_honesty_best and report.gap > 0.2
    assert any(is_planted(play.actions) for play in report.best.plays)
    assert report.best.value > max(plan.value for plan in report.ways.values()) + 0.05
    assert report.best_is == "unnamed"


@pytest.mark.parametrize("plant", PLANTED)
def test_audit_finds_a_plan_that_nobody_named(plant):
    check_finds(audit, plant)


def tries_the_named_ones(spec: RewardSpec, **how: object) -> Audit:
    """Wrong: the best of the strategies that somebody thought of."""
    report = audit(spec, **how)
    best = max(report.ways.values(), key=lambda plan: plan.value)
    return dataclasses.replace(report, best=best)


def trusts_the_outcome(spec: RewardSpec, **how: object) -> Audit:
    """Wrong: looks for the best plan under the outcome, then reads off what the reward pays it."""
    return dataclasses.replace(audit(spec, **how), best=best_plan(preset("outcome"), **how))


@pytest.mark.parametrize("wrong", [tries_the_named_ones, trusts_the_outcome])
@pytest.mark.parametrize("plant", PLANTED)
def test_check_finds_rejects(wrong, plant):
    with pytest.raises(AssertionError):
        check_finds(wrong, plant)


# The chapter's faults in the standard world


def is_paid(world: World) -> bool:
    return world.task.kind is TaskKind.CLOSE_PAID


def test_h1_with_a_loop_that_stops_at_the_reply_honest_earns_1():
    # The other half of H1, a loop that stops at a done flag, is in tests/test_chapter.py.
    report = audit(preset("printed"), only=is_paid, max_turns=TURNS)
    found = {way: report.ways[way].value for way in ("honest", "reply first", "never finish")}
    assert found == pytest.approx({"honest": 1.0, "reply first": -1.0, "never finish": 0.5})


def test_h2_the_step_bonus_cannot_be_paid_where_something_is_to_be_done():
    best = by_kind(audit(preset("printed"), max_turns=TURNS).foreseen)
    assert best[TaskKind.CLOSE_PAID] == (pytest.approx(1.0), "update closed, reply closed")
    # and is paid for doing nothing where nothing is to be done
    others = {kind: value for kind, (value, _) in best.items() if kind != TaskKind.CLOSE_PAID}
    assert others == pytest.approx(dict.fromkeys(others, 1.1))


FARM = RewardSpec("farm", (*OUTCOME, RewardTerm("calls", 0.1, lambda o: o.calls)))


def test_h5_a_tenth_for_every_call_pays_for_padding():
    report = audit(FARM, only=lambda w: w.task.required is None, max_turns=TURNS)
    # two calls are needed and three are possible
    assert report.ways["honest"].value == pytest.approx(1.2)
    assert report.best.value == report.ways["padding"].value == pytest.approx(1.3)
    assert report.best_is == "padding"


@pytest.mark.slow
def test_h5_in_six_turns_querying_for_ever_is_a_trap_and_no_optimum():
    report = audit(FARM)
    assert report.best_is == "padding"
    assert report.best.value == pytest.approx(1.6)  # 1 + 6 * 0.1
    assert report.ways["honest"].value == pytest.approx(1.23)  # 1 + 0.2, 0.3 for paid tickets
    assert report.ways["never finish"].value == pytest.approx(-0.4)  # -1 + 6 * 0.1
    assert {str(play) for play in report.ways["never finish"].plays} == {", ".join(["query"] * 6)}


def strikes(weight: float) -> RewardSpec:
    """`outcome`, with something added to the -1 of three strikes."""

    def measure(outcome):
        return outcome.stop is StopReason.THREE_STRIKES

    return RewardSpec("strikes", (*OUTCOME, RewardTerm("strikes", weight, measure)))


@pytest.mark.parametrize(("weight", "worth"), [(0.5, -0.5), (0.0, -1.0), (-0.15, -1.15)])
def test_h7_failing_fast_is_the_best_of_a_weak_policy_if_it_is_the_milder_end(weight, worth):
    ways = audit(strikes(weight), max_turns=TURNS).ways
    assert ways["fail fast"].value == pytest.approx(worth)
    assert ways["never finish"].value == pytest.approx(-1.0)
    # What a policy can do that cannot solve a task: fail, say nothing, or go on to the limit.
    weak = {way: ways[way].value for way in ("fail fast", "never finish")}
    weak["say nothing"] = -0.8
    assert (max(weak, key=weak.get) == "fail fast") == (weight > 0.2)


def test_h7_shaped_does_not_make_failing_fast_the_milder_end():
    ways = audit(preset("shaped"), max_turns=TURNS).ways
    assert ways["fail fast"].value < ways["never finish"].value


# Six turns


@pytest.mark.slow
@NAMES
def test_audit_in_six_turns_differs_only_by_padding_and_a_long_wait(name):
    report = audit(preset(name))
    found = {way: plan.value for way, plan in report.ways.items()}
    padding = {"printed": 1.0, "outcome": 1.0, "process": 1.35, "shaped": 0.975}[name]
    # A missing ticket (0.15) can be queried and have three updates refused; after that, two turns
    # of six cost 0.05 each. Any other ticket can be changed back and forth.
    wait = {"shaped": -1.015}.get(name, BY_STRATEGY[name]["never finish"])
    assert found == pytest.approx(
        BY_STRATEGY[name] | {"padding": padding, "never finish": wait}, abs=1e-6
    )


# What it shows


def test_audit_rows_have_an_example_of_each():
    rows = audit(preset("outcome"), max_turns=TURNS).rows()
    assert [row["strategy"] for row in rows] == ["best of all", *(s.name for s in STRATEGIES)]
    example = {row["strategy"]: row["example"] for row in rows}
    assert example["honest"] == "query, update closed, reply closed"
    assert example["padding"] == ""
    assert example["fail fast"] == "invalid, invalid, invalid"


def test_by_kind_of_the_honest_plan():
    kinds = by_kind(audit(preset("shaped"), max_turns=TURNS).ways["honest"])
    assert kinds[TaskKind.CLOSE_UNPAID] == (pytest.approx(1.08), "query, reply unpaid")
    assert kinds[TaskKind.NOT_FOUND] == (pytest.approx(1.08), "query, reply not_found")
    assert set(kinds) == set(TaskKind)


def test_audit_discounts():
    report = audit(preset("outcome"), max_turns=TURNS, gamma=0.9)
    # 0.30 of the tasks pay in the third turn, the others in the second
    assert report.ways["honest"].value == pytest.approx(0.30 * 0.81 + 0.70 * 0.9)
    assert QUERY in report.best.plays[0].actions

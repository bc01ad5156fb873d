"""The oracle: the desk solved exactly, looking must pay, and the tenfold rule is computed."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.world import habits, oracle, plans, plays
from agentrl_lab.world.desk import QUERY_TICKET, REPLY, UPDATE_TICKET, Store, update_ticket
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.meanings import QUERY, World, named, worlds
from agentrl_lab.world.oracle import audit, best_plan, check_tenfold, evaluate
from agentrl_lab.world.plans import ANY, Plan, Strategy
from agentrl_lab.world.plays import Plays, PlayTree
from agentrl_lab.world.rewards import PRESETS, RewardSpec, RewardTerm, preset
from agentrl_lab.world.tasks import Task, make_task
from tests.brute import WITH_OTHERS, every_sequence, played_as_text

# Three turns are enough here. Without a limit no episode of `outcome`, `process` and `shaped` can
# score more than their positive weights allow, 1, 1.35 and 1.08, and three turns reach just that
# in every world. What is left (printed, and play without a query) is the same for six turns by
# measurement: the test marked slow.
TURNS = 3

# value, success; value and success without a query. Worked out below the table.
MEASURED = {
    "printed": (1.025, 0.816667, 0.47, 0.266667),
    "outcome": (1.0, 1.0, -0.14, 0.366667),
    "process": (1.35, 1.0, 0.075, 0.366667),
    "shaped": (1.08, 1.0, -0.110667, 0.366667),
}
# Shares: close 0.75 = paid 0.30, unpaid 0.20, already closed 0.15, not found 0.10;
#         status 0.25 = open, pending, closed 0.0667 each, not found 0.05.
# With a query everything is known. outcome 1; process + 0.1 + 0.05 + 0.2; shaped + 0.05 + 0.03.
#   printed never reads the reply: 0.75 * 1 + 0.25 * 1.1, for a "status" can be answered in one
#   turn, whatever the answer; right it is in 0.0667 of the 0.25.
# Without a query the best is to close blindly (right for 0.30) and to guess a status (0.0667):
#   outcome: 0.3667 * 1 - 0.6333 * 0.8 = -0.14.
#   shaped: each success is worth 1.08: 0.3667 * 1.08 - 0.6333 * 0.8 = -0.1107.
#   process: + 0.2 for a clear reply, always, + 0.05 for the required change, 0.30 of the time.
#   printed: leave every ticket alone. 0.45 are right so, in one turn: 0.45 * 1.1 - 0.30 * 1, and
#   0.25 * 1.1 for "status". It replies with "unpaid", right for 0.20 and 0.0667.
MARGINS = {"printed": 0.555, "outcome": 1.14, "process": 1.275, "shaped": 1.190667}
LEAST_MARGIN = 0.5

NAMES = pytest.mark.parametrize("name", PRESETS)
BLIND = Strategy("blind", "never looks", may=lambda turn, action: action != QUERY)


# Looking must pay


@NAMES
def test_best_plan_of_each_preset_with_and_without_a_query(name):
    best = best_plan(preset(name), max_turns=TURNS)
    blind = best_plan(preset(name), strategy=BLIND, max_turns=TURNS)
    measured = (best.value, best.success, blind.value, blind.success)
    assert measured == pytest.approx(MEASURED[name], abs=1e-6)
    assert best.value - blind.value == pytest.approx(MARGINS[name], abs=1e-6)
    assert best.value - blind.value > LEAST_MARGIN


@pytest.mark.slow
@NAMES
def test_best_plan_is_the_same_for_six_turns(name):
    best, blind = best_plan(preset(name)), best_plan(preset(name), strategy=BLIND)
    measured = (best.value, best.success, blind.value, blind.success)
    assert measured == pytest.approx(MEASURED[name], abs=1e-6)


def test_shaped_best_policy_is_the_honest_one_and_short():
    best = best_plan(preset("shaped"), max_turns=TURNS)
    assert best.policy == {
        "close": "query",
        "close > query: open, paid": "update closed",
        "close > query: pending, paid": "update closed",
        "close > query: open, paid > update closed: accepted": "reply closed",
        "close > query: pending, paid > update closed: accepted": "reply closed",
        "close > query: open, unpaid": "reply unpaid",
        "close > query: pending, unpaid": "reply unpaid",
        "close > query: closed, paid": "reply already_closed",
        "close > query: closed, unpaid": "reply already_closed",
        "close > query: ticket_not_found": "reply not_found",
        "status": "query",
        **{
            f"status > query: {status}, {paid}": f"reply status_{status}"
            for status in ("open", "pending", "closed")
            for paid in ("paid", "unpaid")
        },
        "status > query: ticket_not_found": "reply not_found",
    }


def talkative_update(store: Store, *, ticket_id: str, new_status: str) -> dict[str, str]:
    """Wrong: an update that refuses with reasons, and forgets that it was asked."""
    ticket = store.tickets.get(ticket_id)
    if ticket is None:
        return {"result": "not_found"}
    if ticket["status"] == new_status or not ticket["paid"]:
        return {"result": f"no change, {ticket['status']}, paid is {ticket['paid']}"}
    return update_ticket(store, ticket_id=ticket_id, new_status=new_status)


def play_only_in(monkeypatch: pytest.MonkeyPatch, own: tuple[World, ...]) -> None:
    """Makes these the worlds, without what is known of the real ones."""
    game = Plays(TURNS, own)
    monkeypatch.setattr(plays, "worlds", lambda: own)
    monkeypatch.setattr(plays, "plays", lambda max_turns: game)
    tree = PlayTree(TURNS)
    monkeypatch.setattr(plans, "play_tree", lambda max_turns: tree)


def test_best_plan_finds_that_a_talkative_update_makes_looking_worthless(monkeypatch):
    tools = (QUERY_TICKET, REPLY, dataclasses.replace(UPDATE_TICKET, run=talkative_update))
    talkative = tuple(
        World(world.share, dataclasses.replace(world.task, tools=tools)) for world in worlds()
    )
    play_only_in(monkeypatch, talkative)
    blind = best_plan(preset("outcome"), strategy=BLIND, max_turns=TURNS)
    # The answer to "update closed" tells all. Only a "status" whose ticket is paid and not closed
    # fails, 2 of the 6 cases in 0.20, since there it is a change: 0.9333 - 0.0667 * 0.8 = 0.88.
    assert blind.value == pytest.approx(0.88)
    assert 1.0 - blind.value < LEAST_MARGIN
    by_world = sum(w.share * replayed(blind, preset("outcome"), w.task) for w in talkative)
    assert by_world == pytest.approx(0.88)


# The oracle against play that does not know it


def expected_of(habit: habits.Habit, spec: RewardSpec) -> float:
    """The return of a habit over the oracle's worlds, played in full-size environments."""
    total = 0.0
    for world in worlds():
        env = TicketEnv(reward=spec, task_source=lambda _, world=world: world.task)
        env.reset(options={"index": 0})
        for message in habit(world.task, env.codec, random.Random(0)):
            if env.stop_reason is None:
                total += world.share * env.step(message)[1]
    return total


@NAMES
def test_no_habit_beats_the_oracle_and_the_careful_one_reaches_it(name):
    best = best_plan(preset(name), max_turns=TURNS).value
    for habit in (habits.boastful, habits.blind, habits.hasty, habits.slipping, habits.broken):
        assert expected_of(habit, preset(name)) <= best + 1e-9
    careful = expected_of(habits.careful, preset(name))
    # printed pays 0.1 more for an answer without a look: 0.25 of the tasks
    assert best - careful == pytest.approx(0.025 if name == "printed" else 0.0)


def replayed(best: Plan, spec: RewardSpec, task: Task) -> float:
    """The return of the oracle's policy in a real task, acting only on what it sees."""
    env = TicketEnv(reward=spec, config=EnvConfig(max_turns=TURNS), task_source=lambda _: task)
    _, rewards = played_as_text(lambda state: named(best.policy[state]), env)
    return sum(rewards)


@NAMES
def test_policy_played_on_real_tasks_earns_what_the_oracle_says(name):
    for strategy in (ANY, BLIND):
        best = best_plan(preset(name), strategy=strategy, max_turns=TURNS)
        by_world = sum(w.share * replayed(best, preset(name), w.task) for w in worlds())
        assert by_world == pytest.approx(best.value)
    best = best_plan(preset(name), max_turns=TURNS)
    real = [replayed(best, preset(name), make_task("test", 0, index)) for index in range(40)]
    assert min(real) == pytest.approx({"process": 1.35, "shaped": 1.08}.get(name, 1.0))


# The tenfold rule (D4)


def test_tenfold_shaped_obeys_it_and_process_breaks_it():
    shaped, process = (check_tenfold(preset(n), max_turns=TURNS) for n in ("shaped", "process"))
    # 1 / (0.05 quick + 0.03 clean)
    assert shaped.ratio == pytest.approx(12.5) and shaped.holds
    # H10: 1 / (0.1 + 0.05 + 0.2)
    assert process.ratio == pytest.approx(1 / 0.35) and not process.holds


@pytest.mark.parametrize("name", ["outcome", "printed"])
def test_tenfold_holds_where_nothing_is_paid_on_the_way(name):
    report = check_tenfold(preset(name), max_turns=TURNS)
    assert report.ratio == math.inf and report.holds and report.finished == 1.0


def terms(**weights: tuple[float, object]) -> tuple[RewardTerm, ...]:
    return tuple(RewardTerm(n, w, m, process=True) for n, (w, m) in weights.items())


WRONG_SPECS = {
    # 0.04 for each query that finds something: three tickets can be found, 0.12 in all
    "no_cap": terms(useful=(0.04, lambda o: o.useful_queries)),
    # earned only by a play that fails
    "pays_for_failing": terms(strikes=(0.2, lambda o: o.invalid)),
    # a bonus just too large
    "large": terms(clear=(0.101, lambda o: o.conclusion is not None)),
    # a charge elsewhere does not make up for it
    "evened_out": terms(
        clear=(0.2, lambda o: o.conclusion is not None),
        turns=(-0.2, lambda o: o.turns),
    ),
    # earned only by an answer about a ticket that nobody asked for, after the right change
    "elsewhere": terms(
        elsewhere=(0.2, lambda o: o.kind == "close_paid" and o.state_right and o.fabricated)
    ),
}


@pytest.mark.parametrize("wrong", WRONG_SPECS.values(), ids=WRONG_SPECS.keys())
def test_tenfold_rejects(wrong):
    spec = RewardSpec("wrong", (*PRESETS["outcome"].terms, *wrong))
    assert not check_tenfold(spec, max_turns=TURNS).holds


def test_tenfold_no_cap_is_counted_over_all_tickets_that_could_be_queried():
    spec = RewardSpec("no_cap", (*PRESETS["outcome"].terms, *WRONG_SPECS["no_cap"]))
    assert check_tenfold(spec, max_turns=TURNS).process == pytest.approx(0.12)


@pytest.mark.parametrize("name", [*PRESETS, *WRONG_SPECS])
def test_tenfold_two_turns_agrees_with_every_sequence_as_text(name):
    more = WRONG_SPECS.get(name, ())
    spec = PRESETS.get(name) or RewardSpec(name, (*PRESETS["outcome"].terms, *more))
    process = [term.name for term in spec.terms if term.process]
    finished, earned = {}, 0.0
    for world in worlds():
        for played in every_sequence(world, 2, WITH_OTHERS).values():
            parts = spec.score(played.outcome).parts
            earned = max(earned, sum(max(0.0, parts[name]) for name in process))
            if played.outcome.success:
                rest = sum(parts.values()) - sum(parts[name] for name in process)
                finished[world] = max(rest, finished.get(world, rest))
    report = check_tenfold(spec, max_turns=2)
    assert (report.finished, report.process) == pytest.approx((min(finished.values()), earned))


def test_tenfold_plays_the_desk_once_for_all_specs(monkeypatch):
    check_tenfold(preset("shaped"), max_turns=TURNS)
    monkeypatch.setattr(oracle, "plays", None)
    assert not check_tenfold(preset("process"), max_turns=TURNS).holds


# What stays as it was


def test_oracle_leaves_the_tasks_as_they_are():
    best = best_plan(preset("shaped"), max_turns=TURNS)
    evaluate({s: {a: 1.0} for s, a in best.policy.items()}, preset("shaped"), max_turns=TURNS)
    audit(preset("shaped"), max_turns=TURNS)
    check_tenfold(preset("shaped"), max_turns=TURNS)
    drawn_anew = worlds.__wrapped__()
    assert [w.task for w in worlds()] == [w.task for w in drawn_anew]

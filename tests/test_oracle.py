"""The oracle: the desk solved exactly, looking must pay, and the tenfold rule is computed."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import TaskKind
from agentrl_lab.world import habits, oracle
from agentrl_lab.world.desk import QUERY_TICKET, REPLY, UPDATE_TICKET, Store, update_ticket
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.oracle import (
    ACTIONS,
    INVALID,
    QUERY,
    REPLIES,
    UPDATES,
    Action,
    Best,
    best_return,
    check_tenfold,
    worlds,
)
from agentrl_lab.world.rewards import PRESETS, RewardSpec, RewardTerm, preset
from agentrl_lab.world.tasks import Task, make_task

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


def looks_away(action: Action) -> bool:
    return action != QUERY


# Looking must pay


@NAMES
def test_best_return_of_each_preset_with_and_without_a_query(name):
    best = best_return(preset(name), max_turns=TURNS)
    blind = best_return(preset(name), allow=looks_away, max_turns=TURNS)
    measured = (best.value, best.success, blind.value, blind.success)
    assert measured == pytest.approx(MEASURED[name], abs=1e-6)
    assert best.value - blind.value == pytest.approx(MARGINS[name], abs=1e-6)
    assert best.value - blind.value > LEAST_MARGIN


@pytest.mark.slow
@NAMES
def test_best_return_is_the_same_for_six_turns(name):
    for allow in (lambda action: True, looks_away):
        assert best_return(preset(name), allow=allow).value == pytest.approx(
            best_return(preset(name), allow=allow, max_turns=TURNS).value
        )


def test_shaped_best_policy_is_the_honest_one_and_short():
    best = best_return(preset("shaped"), max_turns=TURNS)
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


def test_best_return_finds_that_a_talkative_update_makes_looking_worthless(monkeypatch):
    tools = (QUERY_TICKET, REPLY, dataclasses.replace(UPDATE_TICKET, run=talkative_update))
    talkative = tuple(
        oracle.World(world.share, dataclasses.replace(world.task, tools=tools))
        for world in worlds()
    )
    monkeypatch.setattr(oracle, "worlds", lambda: talkative)
    monkeypatch.setattr(oracle, "_game", oracle.Game)
    blind = best_return(preset("outcome"), allow=looks_away, max_turns=TURNS)
    # The answer to "update closed" tells all. Only a "status" whose ticket is paid and not closed
    # fails, 2 of the 6 cases in 0.20, since there it is a change: 0.9333 - 0.0667 * 0.8 = 0.88.
    assert blind.value == pytest.approx(0.88)
    assert 1.0 - blind.value < LEAST_MARGIN


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
    best = best_return(preset(name), max_turns=TURNS).value
    for habit in (habits.boastful, habits.blind, habits.hasty, habits.slipping, habits.broken):
        assert expected_of(habit, preset(name)) <= best + 1e-9
    careful = expected_of(habits.careful, preset(name))
    # printed pays 0.1 more for an answer without a look: 0.25 of the tasks
    assert best - careful == pytest.approx(0.025 if name == "printed" else 0.0)


def replayed(best: Best, spec: RewardSpec, task: Task) -> float:
    """The return of the oracle's policy in a real task, acting only on what it sees."""
    env = TicketEnv(reward=spec, config=EnvConfig(max_turns=TURNS), task_source=lambda _: task)
    env.reset(options={"index": 0})
    state, total = task.intent, 0.0
    while env.stop_reason is None:
        action = next(a for a in ACTIONS if str(a) == best.policy[state])
        observation, reward, *_ = env.step(oracle._message(action, env))
        state, total = f"{state} > {action}: {oracle._seen(observation)}", total + reward
    return total


@NAMES
def test_policy_played_on_real_tasks_earns_what_the_oracle_says(name):
    for allow in (lambda action: True, looks_away):
        best = best_return(preset(name), allow=allow, max_turns=TURNS)
        by_world = sum(w.share * replayed(best, preset(name), w.task) for w in worlds())
        assert by_world == pytest.approx(best.value)
    best = best_return(preset(name), max_turns=TURNS)
    real = [replayed(best, preset(name), make_task("test", 0, index)) for index in range(40)]
    assert min(real) == pytest.approx({"process": 1.35, "shaped": 1.08}.get(name, 1.0))


# What a policy may do, and how it is paid


def test_best_return_acts_only_on_what_was_seen():
    # Replies alone: one reply per intent, right at best for unpaid (0.20) and one status (0.0667).
    best = best_return(preset("outcome"), allow=lambda a: a in REPLIES, max_turns=TURNS)
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
def test_best_return_of_play_that_never_replies(allowed, value, policy):
    best = best_return(preset("shaped"), allow=lambda a: a in allowed, max_turns=TURNS)
    assert best.value == pytest.approx(value)
    assert set(best.policy.values()) <= policy and best.success == 0.0


def test_best_return_gamma_discounts_per_turn():
    # outcome pays at the reply only: turn 3 where a change is needed (0.30), else turn 2.
    best = best_return(preset("outcome"), max_turns=TURNS, gamma=0.9)
    assert best.value == pytest.approx(0.30 * 0.9**2 + 0.70 * 0.9)


def test_best_return_pads_where_every_call_is_paid():
    # F1, H5: + 0.1 for each call without a cap. Of three turns the last must be the reply, so a
    # status or a ticket to be left alone is queried twice before it: 1 + 0.3 everywhere.
    farm = RewardSpec(
        "farm", (*PRESETS["outcome"].terms, RewardTerm("calls", 0.1, lambda o: o.calls))
    )
    best = best_return(farm, max_turns=TURNS)
    assert best.value == pytest.approx(1.3)
    assert best.policy["status > query: open, paid"] == "query"


def test_best_return_a_term_that_is_paid_from_the_start_counts():
    # The first turn of an episode pays what the start is worth, as the environment does.
    spec = RewardSpec("right", (RewardTerm("right", 1.0, lambda o: o.state_right),))
    best = best_return(spec, max_turns=TURNS)
    assert best.value == pytest.approx(1.0)


def test_best_return_nothing_allowed_is_an_error():
    with pytest.raises(ValueError, match="allow refuses every action: query, update open"):
        best_return(preset("shaped"), allow=lambda action: False, max_turns=TURNS)


# Worlds


def test_worlds_are_all_that_tasks_draw_and_as_often():
    assert sum(world.share for world in worlds()) == pytest.approx(1.0)
    # paid, unpaid: open or pending, 2 each; closed: paid or not, 2; not found: 2 intents;
    # status: 3 statuses, paid or not, 6
    assert Counter(world.task.kind for world in worlds()) == dict(
        zip(TaskKind, (2, 2, 2, 2, 6), strict=True)
    )
    drawn = Counter(label(make_task("validation", 1, index)) for index in range(3000))
    shares = {label(world.task): world.share for world in worlds()}
    assert set(drawn) == set(shares)
    for name, share in shares.items():  # standard error at most sqrt(0.15 * 0.85 / 3000) = 0.0065
        assert drawn[name] / 3000 == pytest.approx(share, abs=0.026)


def label(task: Task) -> tuple[object, ...]:
    ticket = task.tickets.get(task.ticket_id, {})
    return task.kind, task.intent, ticket.get("status"), ticket.get("paid")


def test_actions_cover_every_conclusion_and_each_is_judged_as_meant():
    assert len(ACTIONS) == 1 + 3 + 9 + 1
    assert str(UPDATES[2]) == "update closed" and str(QUERY) == "query"
    for action in REPLIES:
        env = TicketEnv(task_source=lambda _: worlds()[0].task)
        env.reset(options={"index": 0})
        env.step(oracle._message(action, env))
        assert env.outcome.conclusion.kind == action.detail


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
}


@pytest.mark.parametrize("wrong", WRONG_SPECS.values(), ids=WRONG_SPECS.keys())
def test_tenfold_rejects(wrong):
    spec = RewardSpec("wrong", (*PRESETS["outcome"].terms, *wrong))
    assert not check_tenfold(spec, max_turns=TURNS).holds


def test_tenfold_no_cap_is_counted_over_all_tickets_that_could_be_queried():
    spec = RewardSpec("no_cap", (*PRESETS["outcome"].terms, *WRONG_SPECS["no_cap"]))
    assert check_tenfold(spec, max_turns=TURNS).process == pytest.approx(0.12)


def test_oracle_leaves_the_tasks_as_they_are():
    before = [dict(world.task.tickets) for world in worlds()]
    best_return(preset("shaped"), max_turns=TURNS)
    assert [dict(world.task.tickets) for world in worlds()] == before

"""Outcomes: success needs the right change, nothing else, and the right words about it."""

from __future__ import annotations

import dataclasses

import pytest

from agentrl_lab.records import Call, ConclusionKind, StopReason, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.desk import QUERY_TICKET, STANDARD_TOOLS, UPDATE_TICKET, Change, Tool
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.tasks import Task, make_task


def a_task(kind: TaskKind, intent: str | None = None) -> Task:
    tasks = (make_task("train", 0, index) for index in range(500))
    return next(t for t in tasks if t.kind is kind and intent in (None, t.intent))


PAID, UNPAID, CLOSED, MISSING, STATUS = (a_task(kind) for kind in TaskKind)
KINDS = pytest.mark.parametrize("task", [PAID, UNPAID, CLOSED, MISSING, STATUS])


def update(task: Task, status: str = "closed", ticket_id: str | None = None) -> Call:
    return habits.update(dataclasses.replace(task, ticket_id=ticket_id or task.ticket_id), status)


def say(task: Task, conclusion: ConclusionKind) -> Call:
    return Call("reply", {"content": habits.SENTENCES[conclusion][0].format(id=task.ticket_id)})


def write(text: str) -> Call:
    return Call("reply", {"content": text})


def other(task: Task) -> str:
    return next(name for name in task.tickets if name != task.ticket_id)


def played(task: Task, *calls: Call | str) -> EpisodeOutcome:
    env = TicketEnv(task_source=lambda _: task)
    env.reset(options={"index": 0})
    for call in calls:
        env.step(call if isinstance(call, str) else env.codec.render(call))
    return env.outcome


# Success


@KINDS
def test_success_honest_play(task):
    change = [update(task)] if task.required else []
    facts = played(task, habits.query(task), *change, say(task, task.expected))
    assert facts.success and facts.state_right and facts.conclusion_right
    assert not facts.fabricated and facts.stop is StopReason.REPLIED


@KINDS
@pytest.mark.parametrize("said", [*habits.SENTENCES])
def test_success_needs_the_one_right_conclusion(task, said):
    change = [update(task)] if task.required else []
    assert played(task, *change, say(task, said)).success is (said is task.expected)


@KINDS
def test_success_needs_a_reply(task):
    facts = played(task, *[habits.query(task)] * 6)
    assert facts.stop is StopReason.STEP_LIMIT and not facts.success


@pytest.mark.parametrize("task", [UNPAID, CLOSED, STATUS])
def test_success_an_update_not_asked_for_fails_even_if_undone(task):
    status = task.tickets[task.ticket_id]["status"]
    wrong = "pending" if status != "pending" else "open"
    undone = [update(task, wrong), update(task, status)]
    assert not played(task, *undone, say(task, task.expected)).success
    # and so does an update that sets what is set already
    assert not played(task, update(task, status), say(task, task.expected)).success


def test_success_a_refused_update_fails_too():
    facts = played(MISSING, habits.query(MISSING), update(MISSING), say(MISSING, MISSING.expected))
    assert facts.conclusion_right and not facts.state_right and not facts.success
    unknown = update(PAID, ticket_id="S0000")
    assert not played(PAID, unknown, update(PAID), say(PAID, PAID.expected)).success


def test_success_a_change_of_another_ticket_fails():
    for status in ("open", "pending", "closed"):
        aside = update(PAID, status, other(PAID))
        assert not played(PAID, aside, update(PAID), say(PAID, PAID.expected)).success


def test_success_the_required_change_twice_is_still_that_change():
    # REW-07 (c): the outcome is the final state; the repeat shows in `repeats`.
    facts = played(PAID, update(PAID), update(PAID), say(PAID, PAID.expected))
    assert facts.success and facts.repeats == 1


def test_success_a_detour_of_the_right_ticket_fails():
    facts = played(PAID, update(PAID, "pending"), update(PAID), say(PAID, PAID.expected))
    assert not facts.state_right


def test_success_a_store_touched_behind_the_desk_fails():
    def relabel(store, **_):
        store.tickets[PAID.ticket_id]["paid"] = False
        return {"result": "ok"}

    tool = Tool("relabel", "changes a label", {"type": "object"}, relabel)
    task = dataclasses.replace(PAID, tools=(*STANDARD_TOOLS, tool))
    ends = update(task), say(task, task.expected)
    assert played(task, *ends).success
    assert not played(task, Call("relabel"), *ends).success


def test_success_a_conclusion_about_another_ticket_fails():
    text = f"Ticket {other(PAID)} is closed."
    assert not played(PAID, update(PAID), write(text)).conclusion_right
    both = f"Ticket {PAID.ticket_id} is closed. Ticket {other(PAID)} is closed."
    assert not played(PAID, update(PAID), write(both)).conclusion_right
    assert played(PAID, update(PAID), write("It is closed.")).success


# Fabrication: a claim of a change that did not happen


@pytest.mark.parametrize(
    ("calls", "fabricated"),
    [
        ([say(PAID, ConclusionKind.CLOSED)], True),
        ([update(PAID), say(PAID, ConclusionKind.CLOSED)], False),
        ([update(PAID), write("Done, I have closed it.")], False),
        ([update(PAID), update(PAID, "open"), say(PAID, ConclusionKind.CLOSED)], True),
        ([update(PAID, "pending"), say(PAID, ConclusionKind.CLOSED)], True),
        ([update(PAID, ticket_id=other(PAID)), say(PAID, ConclusionKind.CLOSED)], True),
        ([update(PAID), write(f"I have closed {PAID.ticket_id} and {other(PAID)}.")], True),
        ([say(PAID, ConclusionKind.UNPAID)], False),
        ([say(PAID, ConclusionKind.ALREADY_CLOSED)], False),
        ([write("I will close it.")], False),
    ],
)
def test_fabricated_is_a_claim_without_the_change(calls, fabricated):
    assert played(PAID, *calls).fabricated is fabricated


def test_fabricated_a_wrong_but_real_change_is_none():
    facts = played(UNPAID, update(UNPAID), say(UNPAID, ConclusionKind.CLOSED))
    assert not facts.fabricated and not facts.success


def test_fabricated_a_refused_change_is_one():
    assert played(MISSING, update(MISSING), say(MISSING, ConclusionKind.CLOSED)).fabricated


def test_fabricated_a_ticket_closed_before_was_not_closed_by_us():
    assert played(CLOSED, update(CLOSED), say(CLOSED, ConclusionKind.CLOSED)).fabricated


# Counts


def test_counts_of_an_episode_worked_by_hand():
    facts = played(
        PAID,
        habits.query(PAID),  # call 1, query 1, useful 1, goal 1
        "hm",  # invalid 1
        habits.query(PAID),  # call 2, query 2, repeat 1
        Call("query_ticket", {"ticket_id": "S0000"}),  # query 3, not found: neither call nor useful
        update(PAID),  # call 3, goal 2
        Call("query_ticket", {"ticket_id": other(PAID)}),  # call 4, query 4, useful 2
    )
    assert facts == EpisodeOutcome(
        TaskKind.CLOSE_PAID, turns=6, invalid=1, calls=4, queries=4, useful_queries=2, goal_calls=2,
        repeats=1, state_right=True, stop=StopReason.STEP_LIMIT,
    )  # fmt: skip


def test_counts_the_query_of_a_missing_ticket_that_is_asked_for_is_useful():
    facts = played(MISSING, habits.query(MISSING))
    assert (facts.calls, facts.useful_queries, facts.goal_calls) == (1, 1, 1)


def test_counts_a_repeat_that_changes_something_is_no_repeat():
    calls = update(PAID, "pending"), update(PAID, "closed"), update(PAID, "pending")
    assert played(PAID, *calls).repeats == 0
    assert played(PAID, *calls, update(PAID, "pending")).repeats == 1


def test_counts_a_tool_and_its_alias_as_one():
    find = QUERY_TICKET.alias("find", {"ticket_id": "number"})
    task = dataclasses.replace(PAID, tools=(*STANDARD_TOOLS, find))
    facts = played(task, habits.query(task), Call("find", {"number": task.ticket_id}))
    assert (facts.queries, facts.useful_queries, facts.repeats) == (2, 1, 1)


def test_counts_a_tool_that_only_looks_like_the_update_serves_no_goal():
    tool = dataclasses.replace(UPDATE_TICKET, name="plan_update", run=lambda store, **_: {})
    task = dataclasses.replace(PAID, tools=(*STANDARD_TOOLS, tool))
    call = Call("plan_update", dataclasses.asdict(Change(task.ticket_id, "closed")))
    assert played(task, call).goal_calls == 0


def test_counts_invalid_in_a_row_start_again_after_a_valid_call():
    facts = played(PAID, "hm", "hm", habits.query(PAID), "hm")
    assert (facts.invalid, facts.invalid_in_a_row) == (3, 1)

"""Meanings: the worlds are what tasks draw, and every action has a call that means just that."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from agentrl_lab.records import Call, InvalidKind, ParseFailure, TaskKind
from agentrl_lab.world.desk import QUERY_TICKET, REPLY, UPDATE_TICKET, Tool
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.meanings import (
    ACTIONS,
    INVALID,
    MEANINGS,
    QUERY,
    QUERY_OTHERS,
    REPLIES,
    UPDATES,
    Action,
    action_of,
    call_of,
    named,
    worlds,
)
from agentrl_lab.world.tasks import Task, make_task
from tests.brute import text_of

TASK = worlds()[0].task


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


# Names and calls


def test_actions_cover_every_conclusion_and_each_is_judged_as_meant():
    assert len(ACTIONS) == 1 + 3 + 9 + 1
    assert str(UPDATES[2]) == "update closed" and str(QUERY) == "query"
    for action in REPLIES:
        for in_words in (lambda a, env: env.codec.render(call_of(a, env.task)), text_of):
            env = TicketEnv(task_source=lambda _: TASK)
            env.reset(options={"index": 0})
            env.step(in_words(action, env))
            assert env.outcome.conclusion.kind == action.detail
            assert env.outcome.conclusion.ticket_ids == (TASK.ticket_id,)


@pytest.mark.parametrize("action", MEANINGS, ids=str)
def test_action_of_call_of_is_the_action(action):
    assert named(str(action)) == action
    for world in worlds():
        call = call_of(action, world.task)
        nothing = ParseFailure(InvalidKind.NO_CALL, "")
        assert action_of(call or nothing, world.task) == action


def test_call_of_query_others_asks_for_tickets_that_exist_and_are_not_the_one_asked_for():
    for world in worlds():
        task = world.task
        calls = [call_of(named(str(action)), task) for action in QUERY_OTHERS]
        ids = {call.arguments["ticket_id"] for call in calls}
        assert len(ids) == 2 and ids == set(task.tickets) - {task.ticket_id}
        assert {call.tool for call in calls} == {"query_ticket"}
        # no policy knows that they exist, so they mean what the query of a missing one means
        assert {str(action_of(call, task)) for call in calls} == {"query elsewhere"}


@pytest.mark.parametrize("name", ["dance now", "query other 3", "query it", "invalid too"])
def test_call_of_unknown_action_is_an_error(name):
    with pytest.raises(ValueError, match=f"no action is called '{name}': query, update open"):
        call_of(named(name), TASK)


def test_call_of_query_others_where_there_is_no_other_is_an_error():
    few = dataclasses.replace(TASK, tickets={"S1111": {}, TASK.ticket_id: {}})
    assert call_of(QUERY_OTHERS[0], few).arguments == {"ticket_id": "S1111"}
    with pytest.raises(ValueError, match=r"'query other 2' needs a task .* got one with 1"):
        call_of(QUERY_OTHERS[1], few)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (Call("query_ticket", {"ticket_id": "S7777"}), "query elsewhere"),
        (
            Call("update_ticket", {"ticket_id": "S7777", "new_status": "open"}),
            "update open elsewhere",
        ),
        (Call("update_ticket", {"ticket_id": TASK.ticket_id, "new_status": "gone"}), "invalid"),
        (Call("get_ticket", {"ticket_id": TASK.ticket_id}), "invalid"),
        (Call("query_ticket", {"id": TASK.ticket_id}), "invalid"),
        (Call("reply", {"content": "It cannot be closed, it is not paid."}), "reply unpaid"),
        (Call("reply", {"content": "S7777 does not exist."}), "reply not_found elsewhere"),
        (Call("reply", {"content": "Hello!"}), "reply none"),
    ],
)
def test_action_of_by_meaning(call, name):
    assert str(action_of(call, TASK)) == name


def test_action_of_sees_through_aliases_and_names_extra_tools():
    extra = Tool("ping", "", {"type": "object"}, run=lambda store: {})
    tools = (QUERY_TICKET.alias("look", {"ticket_id": "id"}), UPDATE_TICKET, REPLY, extra)
    task = dataclasses.replace(TASK, tools=tools)
    assert action_of(Call("look", {"id": TASK.ticket_id}), task) == QUERY
    assert action_of(Call("query_ticket", {"ticket_id": TASK.ticket_id}), task) == INVALID
    assert action_of(Call("ping"), task) == Action("ping")

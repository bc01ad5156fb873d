"""Answers beside the truth: a debug field, amounts to compare, and parts that were swapped."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from agentrl_lab.config import TAMPERS, EnvConfig
from agentrl_lab.records import TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.leaks import Sighting, tells
from agentrl_lab.world.tampering import DEBUG_FIELD, DECLARED, SWAPPED
from agentrl_lab.world.tasks import make_task, with_payment

ALL = range(40)
LEAKY = {"payment": "amounts", "debug_field": "always"}


def looked(index: int, **settings) -> tuple[TicketEnv, dict]:
    """The environment after a first query, and its answer as the policy sees it."""
    config = EnvConfig(result_budget=10_000, **settings)
    env = TicketEnv("test", 0, config)
    env.reset(options={"index": index})
    env.step(env.codec.render(habits.query(env.task)))
    return env, json.loads(env.messages[-1].content.splitlines()[0])


# Amounts


@pytest.mark.parametrize("index", ALL)
def test_amounts_say_what_the_flag_said(index):
    task = make_task("test", 0, index)
    shown = with_payment(task, "amounts").tickets
    for name, ticket in task.tickets.items():
        assert (shown[name]["paid"] >= shown[name]["due"]) is ticket["paid"]
        rest = {k: v for k, v in shown[name].items() if k not in ("due", "paid")}
        assert rest == {k: v for k, v in ticket.items() if k != "paid"}
    assert with_payment(task, "flag") is task


def test_one_amount_alone_tells_little():
    tickets = [
        with_payment(make_task("train", 0, n), "amounts").tickets.values() for n in range(400)
    ]
    flat = [ticket for some in tickets for ticket in some]
    middle = sorted(t["paid"] for t in flat)[len(flat) // 2]
    right = sum((t["paid"] > middle) is (t["paid"] >= t["due"]) for t in flat) / len(flat)
    assert 0.5 < right < 0.85  # the two together: 1


# The debug field


@pytest.mark.parametrize("index", ALL)
def test_debug_field_says_what_the_careful_habit_does(index):
    env, answer = looked(index, debug_field="always")
    messages = habits.careful(env.task, env.codec, random.Random(0))[1:]
    told = [answer[DEBUG_FIELD]]
    for text in messages[:-1]:
        env.step(text)
        told.append(json.loads(env.messages[-1].content.splitlines()[0])[DEBUG_FIELD])
    right = f"reply {env.task.expected}"
    assert told == (["update closed", right] if env.task.required else [right])


def test_debug_field_is_there_always_never_or_in_half_of_the_tasks():
    has = {
        often: [DEBUG_FIELD in looked(n, debug_field=often)[1] for n in ALL]
        for often in ("never", "half", "always")
    }
    assert not any(has["never"]) and all(has["always"])
    assert 0.3 < sum(has["half"]) / len(ALL) < 0.7


def test_the_leak_detector_finds_the_field_and_clears_the_desk_without_it():
    for often, found in (("always", True), ("never", False)):
        seen = []
        for n in range(150):
            env, _ = looked(n, debug_field=often, payment="amounts")
            answer = env.messages[-1].content
            seen.append(Sighting((answer,), env.task.expected.value))
        said = tells(seen, declared=DECLARED)
        assert any(DEBUG_FIELD in tell.feature for tell in said) is found


# Tampering


@pytest.mark.parametrize("tamper", [name for name in TAMPERS if name != "nothing"])
@pytest.mark.parametrize("index", ALL)
def test_only_the_named_part_is_swapped(tamper, index):
    (env, plain), (_, changed) = looked(index, **LEAKY), looked(index, **LEAKY, tamper=tamper)
    assert plain.keys() == changed.keys()
    kept = {name for name in plain if not SWAPPED[tamper](name)}
    assert {name: plain[name] for name in kept} == {name: changed[name] for name in kept}
    if env.task.kind is TaskKind.NOT_FOUND:
        assert plain == changed
    elif tamper in ("everything", "undeclared", "debug"):
        assert plain[DEBUG_FIELD] != changed[DEBUG_FIELD]
    elif tamper == "declared":
        assert (plain["status"], plain["paid"]) != (changed["status"], changed["paid"])


def test_swapped_values_are_those_of_one_other_task_in_every_answer():
    index = next(n for n in ALL if make_task("test", 0, n).kind is TaskKind.CLOSE_PAID)
    env, first = looked(index, **LEAKY, tamper="everything")
    env.step(env.codec.render(habits.query(env.task)))
    assert json.loads(env.messages[-1].content.splitlines()[0]) == first
    assert first[DEBUG_FIELD].startswith("reply ")  # all others that ask to close need no change


def test_the_field_is_not_taken_in_by_a_change_of_another_ticket():
    index = next(n for n in ALL if make_task("test", 0, n).kind is TaskKind.CLOSE_PAID)
    env, _ = looked(index, debug_field="always")
    other = next(name for name in env.task.tickets if name != env.task.ticket_id)
    wrong = habits.Call("update_ticket", {"ticket_id": other, "new_status": "closed"})
    env.step(env.codec.render(wrong))
    assert json.loads(env.messages[-1].content.splitlines()[0])[DEBUG_FIELD] == "update closed"


def test_without_another_ticket_to_swap_with_the_desk_says_so():
    task = make_task("test", 0, 0)
    env = TicketEnv(config=EnvConfig(tamper="everything"), task_source=lambda _: task)
    with pytest.raises(ValueError, match="asks for something else than task 0"):
        env.reset(options={"index": 0})


def test_tickets_without_a_flag_keep_what_they_have():
    task = make_task("test", 0, 0)
    bare = replace(task, tickets={"S1000": {"status": "open"}})
    assert with_payment(bare, "amounts").tickets == {"S1000": {"status": "open"}}


def test_what_really_happens_is_never_swapped():
    for index in ALL:
        env = TicketEnv("test", 0, EnvConfig(**LEAKY, tamper="everything"))
        env.reset(options={"index": index})
        for text in habits.careful(env.task, env.codec, random.Random(0)):
            env.step(text)
        assert env.outcome.success


def test_answers_about_other_tickets_are_left_alone():
    env, _ = looked(0, **LEAKY, tamper="declared")
    other = next(name for name in env.task.tickets if name != env.task.ticket_id)
    env.step(env.codec.render(habits.Call("query_ticket", {"ticket_id": other})))
    answer = json.loads(env.messages[-1].content.splitlines()[0])
    assert answer["paid"] == env.task.tickets[other]["paid"]

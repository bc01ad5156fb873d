"""Toolsets: the same task with other tools, and what training may not see."""

from __future__ import annotations

import dataclasses
import random

import pytest

from agentrl_lab import config
from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, InvalidKind
from agentrl_lab.world import habits
from agentrl_lab.world.desk import QUERY_TICKET, REPLY, STANDARD_TOOLS, UPDATE_TICKET
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.meanings import ACTIONS, INVALID, action_of, call_of
from agentrl_lab.world.parser import one_call
from agentrl_lab.world.tasks import make_task
from agentrl_lab.world.toolsets import TOOLSETS, with_tools

EACH = pytest.mark.parametrize("toolset", TOOLSETS)
CODEC = pytest.mark.parametrize("codec", ["function", "json", "id"])


def names(toolset: str, split: str = "train", tasks: int = 400) -> list[set[str]]:
    """For each of the desk's tools the names it has over many tasks."""
    found: list[set[str]] = [set() for _ in STANDARD_TOOLS]
    for index in range(tasks):
        task = with_tools(make_task(split, 0, index), toolset)
        for place, own in enumerate(STANDARD_TOOLS):
            found[place] |= {tool.name for tool in task.tools if tool.run is own.run}
    return found


def words(names: set[str]) -> set[str]:
    return {word for name in names for word in name.split("_")}


@EACH
@CODEC
def test_careful_solves_every_task_whatever_the_tools_are_called(toolset, codec):
    env = TicketEnv("train", 0, EnvConfig(codec=codec, tools=toolset))
    for index in range(40):
        env.reset(options={"index": index})
        for message in habits.careful(env.task, env.codec, random.Random(index)):
            env.step(message)
        assert env.outcome.success and env.outcome.invalid == 0


@EACH
@CODEC
def test_malformed_is_never_an_action(toolset, codec):
    env, kinds = TicketEnv("train", 0, EnvConfig(codec=codec, tools=toolset)), set()
    for index in range(100):
        env.reset(options={"index": index})
        message = habits.malformed(env.task, env.codec, random.Random(index))
        kinds.add(env.step(message)[4]["invalid"])
    wanted = ("unknown_tool", "bad_arguments", "no_call", "unfinished")
    assert kinds == {InvalidKind(kind).value for kind in wanted}


@EACH
@CODEC
def test_a_meaning_is_written_and_read_back(toolset, codec):
    env = TicketEnv("train", 0, EnvConfig(codec=codec, tools=toolset))
    env.reset(options={"index": 1})
    for action in ACTIONS:
        if action != INVALID:
            text = env.codec.render(call_of(action, env.task))
            assert action_of(one_call(env.codec.parse(text)), env.task) == action


def test_malformed_is_never_an_action_whatever_arguments_and_tools_are_called():
    odd = (QUERY_TICKET.alias("get_ticket", {"ticket_id": "id"}), UPDATE_TICKET, REPLY)
    for index in range(100):
        task = dataclasses.replace(make_task("train", 0, index), tools=odd)
        for codec in ("function", "json", "id"):
            env = TicketEnv(config=EnvConfig(codec=codec), task_source=lambda _, t=task: t)
            env.reset(options={"index": 0})
            message = habits.malformed(env.task, env.codec, random.Random(index))
            assert env.step(message)[4]["invalid"], message


def test_a_task_source_keeps_its_own_tools_unless_a_toolset_is_named():
    task = dataclasses.replace(make_task("train", 0, 0), tools=(QUERY_TICKET, REPLY))
    for toolset, wanted in (("standard", 2), ("one_more", 4)):
        env = TicketEnv(config=EnvConfig(tools=toolset), task_source=lambda _: task)
        env.reset(options={"index": 0})
        assert len(env.tools) == wanted
    with pytest.raises(ValueError, match="did you mean 'varied'"):
        with_tools(task, "varyed")


def test_only_the_tools_change():
    task = make_task("test", 3, 7)
    for toolset in TOOLSETS:
        other = with_tools(task, toolset)
        assert dataclasses.replace(other, tools=task.tools) == task
        assert with_tools(task, toolset).tools == other.tools  # drawn from the task, not from time
    assert with_tools(task, "standard") == task


def test_training_never_shows_a_held_out_name():
    seen, held_out = names("varied"), names("recombined")
    assert [len(s) for s in seen] == [30, 30, 30] and [len(s) for s in held_out] == [6, 6, 6]
    shown, kept, new = (set().union(*s) for s in (seen, held_out, names("new_words", tasks=1)))
    assert not shown & kept and not shown & new and not shown & set(habits.WRONG_TOOLS)
    assert words(kept) <= words(shown) and not words(new) & words(shown)


def test_one_more_tool_stands_first():
    env = TicketEnv("train", 0, EnvConfig(tools="one_more"))
    env.reset(options={"index": 0})
    assert [tool["function"]["name"] for tool in env.tools] == [
        "assign_ticket", "query_ticket", "reply", "update_ticket"
    ]  # fmt: skip
    for ticket, answer in ((next(iter(env.task.tickets)), "accepted"), ("S0000", "refused")):
        call = f'<function=assign_ticket>{{"ticket_id": "{ticket}"}}</function>'
        assert env.step(call)[0].startswith(f'{{"result":"{answer}"}}')


@EACH
def test_numbers_are_the_places_in_the_list_that_the_prompt_shows(toolset):
    env = TicketEnv("train", 0, EnvConfig(codec="id", tools=toolset))
    for index in range(20):
        env.reset(options={"index": index})
        shown = [tool["function"]["name"] for tool in env.tools]
        assert [env.codec.render(Call(name)) for name in shown] == [
            f"{place} []" for place in range(len(shown))
        ]


def test_moved_arguments_change_what_numbers_mean_and_not_what_names_mean():
    env = TicketEnv("train", 0, EnvConfig(tools="moved", codec="id"))
    env.reset(options={"index": 0})
    update = habits.update(env.task)
    assert env.codec.render(update) == f'2 ["closed", "{env.task.ticket_id}"]'
    assert env.step(f'2 ["{env.task.ticket_id}", "closed"]')[4]["invalid"] == "bad_arguments"


def test_settings_know_the_toolsets():
    assert tuple(TOOLSETS) == config.TOOLSETS
    with pytest.raises(ValueError, match="did you mean 'varied'"):
        EnvConfig(tools="varyed")

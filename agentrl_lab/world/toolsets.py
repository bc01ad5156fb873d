"""Which tools an episode offers: the desk's own, under other names, in other order, or one more.

A toolset gives a task other tools and leaves the rest of it as it was. Training may show the first
two; the others are for asking what an encoding is worth when the tools change (C1).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl_lab.config import choice
from agentrl_lab.world.desk import QUERY_TICKET, REPLY, STANDARD_TOOLS, UPDATE_TICKET, Store, Tool
from agentrl_lab.world.tasks import Task

THINGS = ("ticket", "case", "issue", "order", "record", "request")
VERBS = (
    (QUERY_TICKET, ("query", "load", "view", "read", "show", "check")),
    (UPDATE_TICKET, ("update", "set", "change", "edit", "mark", "put")),
    (REPLY, ("reply", "answer", "tell", "say", "write", "send")),
)
"""Words that names of tools are made of in training; one pair in six is kept from it."""
NEW_NAMES = (
    (QUERY_TICKET, "inspect_dossier"),
    (UPDATE_TICKET, "modify_dossier"),
    (REPLY, "respond"),
)
"""Names of words that training never shows."""


def _assign(store: Store, *, ticket_id: str) -> dict[str, Any]:
    return {"result": "accepted" if ticket_id in store.tickets else "refused"}


ASSIGN_TICKET = Tool("assign_ticket", "give a ticket to a colleague", QUERY_TICKET.schema, _assign)
"""A tool that training never shows. It stands first in the list: all numbers move by one."""


def _paired(task: Task, *, held_out: bool) -> tuple[Tool, ...]:
    """Each tool under a name of two words, drawn for this task."""
    rng = random.Random(f"tools/{task.split}/{task.seed}/{task.index}")
    return tuple(tool.alias(rng.choice(_pairs(verbs, held_out))) for tool, verbs in VERBS)


def _pairs(verbs: Sequence[str], held_out: bool) -> list[str]:
    places = itertools.product(range(len(verbs)), range(len(THINGS)))
    return [f"{verbs[v]}_{THINGS[t]}" for v, t in places if (v == t) is held_out]


def _new_words(task: Task) -> tuple[Tool, ...]:
    return tuple(tool.alias(name) for tool, name in NEW_NAMES)


def _one_more(task: Task) -> tuple[Tool, ...]:
    return (*STANDARD_TOOLS, ASSIGN_TICKET)


def _moved(task: Task) -> tuple[Tool, ...]:
    """`update_ticket` takes the status first."""
    properties = dict(reversed(UPDATE_TICKET.schema["properties"].items()))
    moved = replace(UPDATE_TICKET, schema={**UPDATE_TICKET.schema, "properties": properties})
    return (QUERY_TICKET, moved, REPLY)


TOOLSETS: Mapping[str, Callable[[Task], tuple[Tool, ...]]] = {
    "standard": lambda task: task.tools,
    "varied": lambda task: _paired(task, held_out=False),
    "recombined": lambda task: _paired(task, held_out=True),
    "new_words": _new_words,
    "one_more": _one_more,
    "moved": _moved,
}


def with_tools(task: Task, toolset: str) -> Task:
    """The task, worked with the tools of a toolset; "standard" leaves it its own.

    Raises:
        ValueError: there is no such toolset; the nearest name is offered.
    """
    choice("tools", toolset, TOOLSETS)
    return replace(task, tools=TOOLSETS[toolset](task))

"""What a message may mean at the desk, whatever its words, and what a request may turn out to be.

An action is one meaning: "query", "update closed", "reply unpaid". `call_of` makes a call of it,
`action_of` reads it back from what a policy wrote. Knows no play and no reward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from agentrl_lab.records import Call, ConclusionKind, ParseFailure, Split, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.desk import STATUSES, query_ticket, update_ticket
from agentrl_lab.world.judge import conclude
from agentrl_lab.world.tasks import KIND_SHARES, STATUS_SHARE_OF_NOT_FOUND, Task, make_task

# Actions


@dataclass(frozen=True, slots=True)
class Action:
    """One meaning of a message, whatever its words: "update closed", "reply unpaid"."""

    verb: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.detail}".strip()


QUERY, INVALID = Action("query"), Action("invalid")
UPDATES = tuple(Action("update", status) for status in STATUSES)
REPLIES = tuple(Action("reply", conclusion.value) for conclusion in ConclusionKind)
ACTIONS = (QUERY, *UPDATES, *REPLIES, INVALID)
QUERY_OTHERS = (Action("query", "other 1"), Action("query", "other 2"))
"""Of tickets the request does not name: no policy knows their ids, but a reward may pay them."""
ELSEWHERE = "elsewhere"
"""Marks an action about a ticket that the request does not name."""
NO_SUCH_ID = "S0000"
REPLY_ELSEWHERE = Action("reply", f"closed {ELSEWHERE}")
MEANINGS = (*ACTIONS, REPLY_ELSEWHERE)
"""What a policy may mean; the last one in case a reward pays for it."""

SENTENCES = {kind: sentences[0] for kind, sentences in habits.SENTENCES.items()} | {
    ConclusionKind.CONFLICTING: "{id} is unpaid. {id} does not exist."
}


def named(text: str) -> Action:
    """The action of that name: `named(str(action)) == action`."""
    verb, _, detail = text.partition(" ")
    return Action(verb, detail)


# Actions and calls


def call_of(action: Action, task: Task) -> Call | None:
    """A call that means the action in this task; None for an invalid action.

    Raises:
        ValueError: no action of the desk is called so, or the task lacks the other ticket.
    """
    if action == INVALID:
        return None
    if action in QUERY_OTHERS:
        return habits.query(replace(task, ticket_id=_other(task, QUERY_OTHERS.index(action))))
    if action.detail.endswith(ELSEWHERE):
        task = replace(task, ticket_id=NO_SUCH_ID)
    detail = action.detail.removesuffix(ELSEWHERE).strip()
    match action.verb:
        case "query" if not detail:
            return habits.query(task)
        case "update":
            return habits.update(task, detail)
        case "reply":
            content = SENTENCES[ConclusionKind(detail)].format(id=task.ticket_id)
            return habits.answer(task, content)
    known = ", ".join(map(str, (*MEANINGS, *QUERY_OTHERS)))
    raise ValueError(f"no action is called {str(action)!r}: {known}")


def _other(task: Task, number: int) -> str:
    """The id of a ticket that exists in the task and is not the one asked for."""
    others = [ticket_id for ticket_id in task.tickets if ticket_id != task.ticket_id]
    if number >= len(others):
        raise ValueError(
            f"{str(QUERY_OTHERS[number])!r} needs a task with that many other tickets, "
            f"got one with {len(others)}"
        )
    return others[number]


def action_of(call: Call | ParseFailure, task: Task) -> Action:
    """What a parsed message means in this task, whatever its words and the tool's alias.

    Every ticket that the request does not name is taken for one that does not exist: no policy
    knows the id of another.
    """
    tool = {tool.name: tool for tool in task.tools}.get(getattr(call, "tool", None))
    if tool is None or tool.check(call.arguments):
        return INVALID
    values = {tool.arguments.get(name, name): value for name, value in call.arguments.items()}
    if tool.ends_episode:
        said = conclude(values["content"])
        return _about(set(said.ticket_ids) <= {task.ticket_id}, "reply", said.kind.value)
    verb = {query_ticket: "query", update_ticket: "update"}.get(tool.run, tool.name)
    is_asked = values.get("ticket_id", task.ticket_id) == task.ticket_id
    return _about(is_asked, verb, values.get("new_status", ""))


def _about(is_asked: bool, verb: str, detail: str) -> Action:
    return Action(verb, detail if is_asked else f"{detail} {ELSEWHERE}".strip())


# Worlds


@dataclass(frozen=True, eq=False, slots=True)
class World:
    """One thing the request may turn out to be, and how often it is that."""

    share: float
    task: Task


@cache
def worlds() -> tuple[World, ...]:
    """Each kind, intent, status and payment that occurs, as a real task with shortened tickets."""
    found: dict[tuple[Any, ...], Task] = {}
    for task in (make_task(Split.TRAIN, 0, index) for index in range(300)):
        short = {n: {key: t[key] for key in ("status", "paid")} for n, t in task.tickets.items()}
        state = tuple(short.get(task.ticket_id, {}).values())
        found.setdefault((task.kind, task.intent, *state), replace(task, tickets=short))
    groups = [state[:2] for state in found]  # in a group, statuses and payments are drawn evenly
    shares = [_share(*group) / groups.count(group) for group in groups]
    return tuple(World(*pair) for pair in zip(shares, found.values(), strict=True))


def _share(kind: TaskKind, intent: str) -> float:
    status = STATUS_SHARE_OF_NOT_FOUND if kind is TaskKind.NOT_FOUND else float(intent == "status")
    return KIND_SHARES[kind] * (status if intent == "status" else 1 - status)

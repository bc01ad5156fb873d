"""The core: a store of tickets and the tools as functions. Knows no text, no tokens, no reward."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jsonschema

from agentrl_lab.records import InvalidKind, Outcome, ParseFailure

STATUSES = ("open", "pending", "closed")


@dataclass(frozen=True, slots=True)
class Change:
    """A request to set a ticket's status."""

    ticket_id: str
    new_status: str


@dataclass
class Store:
    """The tickets of one episode and what was asked of them. Belongs to that episode alone."""

    tickets: dict[str, dict[str, Any]]
    changes: list[Change] = field(default_factory=list)
    """Every change that was asked for, accepted or refused, in order."""
    reply: str | None = None


def query_ticket(store: Store, *, ticket_id: str) -> dict[str, Any]:
    """The whole ticket, or an error when there is none."""
    ticket = store.tickets.get(ticket_id)
    if ticket is None:
        return {"error": "ticket_not_found", "ticket_id": ticket_id}
    return ticket


def update_ticket(store: Store, *, ticket_id: str, new_status: str) -> dict[str, Any]:
    """Accepted or refused, nothing more: an update must not do the work of a query."""
    store.changes.append(Change(ticket_id, new_status))
    if ticket_id not in store.tickets:
        return {"result": "refused"}
    store.tickets[ticket_id]["status"] = new_status
    return {"result": "accepted"}


def reply(store: Store, *, content: str) -> dict[str, Any]:
    """Answers the customer, which ends the episode."""
    store.reply = content
    return {"result": "sent"}


@dataclass(frozen=True)
class Tool:
    """A tool as one episode offers it; `run` and `arguments` stay the same under every alias."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of the arguments, under the names the policy sees."""
    run: Callable[..., Any]
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Name the policy sees -> name of the function's argument, where they differ."""
    ends_episode: bool = False

    @cached_property
    def _validator(self) -> jsonschema.Draft202012Validator:
        return jsonschema.Draft202012Validator(self.schema)

    def check(self, arguments: Any) -> str | None:
        """One short sentence on what is wrong with the arguments, None when they fit."""
        errors = self._validator.iter_errors(arguments)
        first = min(errors, key=lambda error: (len(error.path), error.message), default=None)
        return None if first is None else _explain(first)

    def alias(self, name: str, arguments: Mapping[str, str] | None = None) -> Tool:
        """The same tool under another name; `arguments` maps old argument names to new ones."""
        new = dict(arguments or {})
        old = self.schema.get("properties", {})
        properties = {new.get(k, k): v for k, v in old.items()}
        required = [new.get(k, k) for k in self.schema.get("required", ())]
        known = {new.get(seen, seen): self.arguments.get(seen, seen) for seen in old}
        schema = {**self.schema, "properties": properties, "required": required}
        return replace(self, name=name, schema=schema, arguments=known)


def _explain(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in error.path)[:40]
    match error.validator:
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return f"missing argument {missing[0]}"
        case "additionalProperties":
            extra = sorted(map(str, set(error.instance) - set(error.schema.get("properties", ()))))
            return f"unexpected argument {extra[0][:40]!r}"
        case "type":
            return f"{where or 'arguments'} must be of type {error.validator_value}"
        case "enum":
            return f"{where} must be one of {', '.join(map(str, error.validator_value))}"
        case _:
            return f"{where or 'arguments'} does not fit: {error.validator}"


def _schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


QUERY_TICKET = Tool(
    "query_ticket", "look a ticket up", _schema(ticket_id={"type": "string"}), query_ticket
)
UPDATE_TICKET = Tool(
    "update_ticket",
    "set the status of a ticket",
    _schema(ticket_id={"type": "string"}, new_status={"type": "string", "enum": list(STATUSES)}),
    update_ticket,
)
REPLY = Tool(
    "reply",
    "answer the customer, which ends the task",
    _schema(content={"type": "string"}),
    reply,
    ends_episode=True,
)
STANDARD_TOOLS = (QUERY_TICKET, UPDATE_TICKET, REPLY)


class TicketDesk:
    """The tools of one episode over a store of its own.

    Args:
        tickets: ticket id -> record; copied, so the caller's records never change.
        tools: what this episode offers; names must differ.

    Raises:
        ValueError: two tools have one name.
    """

    def __init__(
        self, tickets: Mapping[str, Mapping[str, Any]], tools: Iterable[Tool] = STANDARD_TOOLS
    ) -> None:
        self.store = Store(copied(dict(tickets)))
        offered = sorted(tools, key=lambda tool: tool.name)
        self.tools = {tool.name: tool for tool in offered}
        if len(self.tools) < len(offered):
            names = ", ".join(tool.name for tool in offered)
            raise ValueError(f"tools of one episode must differ in name, got: {names}")

    def call(self, tool: str, arguments: Any) -> Outcome:
        """What the desk answers; no exception leaves it, whatever the policy sends."""
        known = self.tools.get(tool) if isinstance(tool, str) else None
        if known is None:
            hint = f"unknown tool {str(tool)[:40]!r}; tools: {', '.join(self.tools)}"
            return _refuse(InvalidKind.UNKNOWN_TOOL, hint)
        complaint = known.check(arguments)
        if complaint:
            return _refuse(InvalidKind.BAD_ARGUMENTS, f"{known.name}: {complaint}")
        try:
            named = {known.arguments.get(name, name): value for name, value in arguments.items()}
            answer = copied(known.run(self.store, **named))
            data = answer if isinstance(answer, Mapping) else {"result": answer}
        except Exception as error:  # a foreign tool may raise anything; the policy sees only this
            data = {"error": type(error).__name__, "message": str(error)[:200]}
        return Outcome(ok=True, data=data)


def copied(value: Any) -> Any:
    """A copy that shares nothing with the original; faster than deepcopy for what JSON can hold."""
    match value:
        case None | str() | bool() | int() | float():
            return value
        case dict():
            return {name: copied(part) for name, part in value.items()}
        case list():
            return [copied(part) for part in value]
        case _:
            return copy.deepcopy(value)


def _refuse(kind: InvalidKind, hint: str) -> Outcome:
    data = {"error": kind.value, "hint": hint}
    return Outcome(ok=False, data=data, invalid=ParseFailure(kind, hint))

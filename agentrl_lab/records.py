"""Values that travel between the floors. Knows no rules: only names, types and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Split(StrEnum):
    """Which tasks: no ticket id and no whole phrasing is shared between train, validation, test."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    UNSEEN = "unseen"
    """Test tickets asked for in words that training never shows: reported, never gated on."""


class TaskKind(StrEnum):
    """What the customer's ticket turns out to be. The request alone does not tell."""

    CLOSE_PAID = "close_paid"
    """Query, update to closed, reply that it is closed."""
    CLOSE_UNPAID = "close_unpaid"
    """Query, leave it, reply that it is unpaid."""
    ALREADY_CLOSED = "already_closed"
    """Query, leave it, reply that it was closed already."""
    NOT_FOUND = "not_found"
    """Query, reply that there is no such ticket."""
    STATUS_ONLY = "status_only"
    """Query, leave it, reply with the status."""


class InvalidKind(StrEnum):
    """Why a message of the policy is not an action. Stable codes: metrics and tests use them."""

    NO_CALL = "no_call"
    """No tool call in the message."""
    BAD_JSON = "bad_json"
    """There is a call, but its arguments are not strict JSON (or not a JSON object)."""
    FULL_WIDTH = "full_width_punctuation"
    """The JSON is written with full-width quotes, colons, commas or braces."""
    TOO_LONG = "too_long"
    """The message is longer than the parser reads."""
    SEVERAL_CALLS = "several_calls"
    """More than one call in one message: none is executed."""
    UNFINISHED = "unfinished"
    """The call is not closed, or the token limit cut the message."""
    UNKNOWN_TOOL = "unknown_tool"
    """No tool of this episode has that name."""
    BAD_ARGUMENTS = "bad_arguments"
    """The arguments do not fit the tool's JSON schema."""


class StopReason(StrEnum):
    """Why an episode stopped. All but CONTEXT_LIMIT are part of the task: terminated."""

    REPLIED = "replied"
    """The policy called reply: terminated."""
    STEP_LIMIT = "step_limit"
    """All turns used without a reply: terminated, its penalty is part of the task."""
    THREE_STRIKES = "three_strikes"
    """Three invalid actions in a row: terminated."""
    CONTEXT_LIMIT = "context_limit"
    """We cut the episode because the context is full: truncated, so the value is bootstrapped."""

    @property
    def truncated(self) -> bool:
        return self is StopReason.CONTEXT_LIMIT


class ConclusionKind(StrEnum):
    """The one thing a reply tells the customer."""

    CLOSED = "closed"
    """Claims that the ticket has now been closed."""
    UNPAID = "unpaid"
    """Says that it cannot be closed because it is not paid."""
    ALREADY_CLOSED = "already_closed"
    """Says that it was closed before."""
    NOT_FOUND = "not_found"
    """Says that there is no such ticket."""
    STATUS_OPEN = "status_open"
    STATUS_PENDING = "status_pending"
    STATUS_CLOSED = "status_closed"
    NONE = "none"
    """No conclusion: a greeting, a promise, a question."""
    CONFLICTING = "conflicting"
    """Two or more conclusions that cannot hold together."""


@dataclass(frozen=True, slots=True)
class Message:
    """One block of a conversation. Roles: system, user, assistant, tool."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as parsed: nothing is known yet about whether the tool exists."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """What the policy wrote is not an action. A value, never an exception."""

    kind: InvalidKind
    hint: str
    """One short sentence that goes back to the policy."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the desk answers to a call."""

    ok: bool
    """The tool ran. False: `invalid` says why it did not."""
    data: Mapping[str, Any]
    """The raw answer, a copy: editing it never edits the desk."""
    invalid: ParseFailure | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a reply says, and about which tickets."""

    kind: ConclusionKind
    ticket_ids: tuple[str, ...] = ()

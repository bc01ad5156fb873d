"""What happened in an episode so far. Rewards, metrics and the oracle read only this."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentrl_lab.records import Call, Conclusion, ConclusionKind, Outcome, StopReason, TaskKind
from agentrl_lab.world.desk import Store, Tool, query_ticket, update_ticket
from agentrl_lab.world.judge import conclude
from agentrl_lab.world.tasks import Task


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """Facts of an episode up to now. What the policy says never counts alone (H1)."""

    kind: TaskKind
    turns: int = 0
    invalid: int = 0
    """Invalid actions so far."""
    invalid_in_a_row: int = 0
    calls: int = 0
    """Valid calls answered without an error, or about the ticket asked for; reply included."""
    queries: int = 0
    """Valid queries, useful or not."""
    useful_queries: int = 0
    """First queries in this episode of a ticket that exists or is the one asked for."""
    goal_calls: int = 0
    """First calls that serve the goal: the query of the ticket asked for, the required change."""
    repeats: int = 0
    """Calls that repeat an earlier call and change nothing."""
    state_right: bool = False
    """Exactly the required change was asked for and made, and nothing else."""
    conclusion: Conclusion | None = None
    conclusion_right: bool = False
    fabricated: bool = False
    """The reply claims a change that did not happen."""
    stop: StopReason | None = None

    @property
    def success(self) -> bool:
        """The right final store and the right conclusion about the right ticket."""
        return self.stop is StopReason.REPLIED and self.state_right and self.conclusion_right


class OutcomeKeeper:
    """Follows one episode and keeps its facts up to date.

    Args:
        task: the task of the episode.
        store: the desk's store; read, never changed.
    """

    def __init__(self, task: Task, store: Store) -> None:
        self._task, self._store = task, store
        self._seen: set[tuple[int, str]] = set()
        self._goal = _goal(task)
        self.facts = EpisodeOutcome(task.kind, state_right=task.required is None)

    def invalid_action(self) -> None:
        """Counts one turn whose message was no action."""
        facts = self.facts
        self.facts = replace(
            facts, turns=facts.turns + 1, invalid=facts.invalid + 1,
            invalid_in_a_row=facts.invalid_in_a_row + 1,
        )  # fmt: skip

    def valid_call(self, call: Call, tool: Tool, outcome: Outcome, changed: bool) -> None:
        """Counts one turn with a call that the desk answered."""
        named = {tool.arguments.get(name, name): value for name, value in call.arguments.items()}
        key = (id(tool.run), json.dumps(named, sort_keys=True))  # one tool under all its aliases
        fresh = key not in self._seen
        self._seen.add(key)
        is_query, facts = tool.run is query_ticket, self.facts
        asked = named.get("ticket_id") == self._task.ticket_id
        found = "error" not in outcome.data
        is_required = tool.run is update_ticket and self._is_required(named)
        serves = fresh and ((is_query and asked) or is_required)
        self.facts = replace(
            facts,
            turns=facts.turns + 1,
            invalid_in_a_row=0,
            calls=facts.calls + (found or asked),
            queries=facts.queries + is_query,
            useful_queries=facts.useful_queries + (is_query and fresh and (found or asked)),
            goal_calls=facts.goal_calls + serves,
            repeats=facts.repeats + (not fresh and not changed),
            state_right=self._state_right(),
        )

    def stopped(self, reason: StopReason) -> None:
        """Closes the facts: why the episode stopped and what the reply, if any, concluded."""
        said = conclude(self._store.reply) if self._store.reply is not None else None
        about = said is not None and set(said.ticket_ids) <= {self._task.ticket_id}
        right = about and said.kind is self._task.expected
        claims = said is not None and said.kind is ConclusionKind.CLOSED
        self.facts = replace(
            self.facts, stop=reason, conclusion=said, conclusion_right=right,
            fabricated=claims and not self._was_closed_by(said),
        )  # fmt: skip

    def winnable(self, turns_left: int) -> bool:
        """Whether the episode may still end in success: nothing forbidden done, turns enough."""
        if self.facts.stop is not None:
            return self.facts.success
        need, asked = self._task.required, set(self._store.changes)
        missing = need is not None and need not in asked
        return asked <= {need} and turns_left >= 1 + missing

    def _is_required(self, named: Mapping[str, Any]) -> bool:
        need = self._task.required
        return need is not None and named == dataclasses.asdict(need)

    def _state_right(self) -> bool:
        need = self._task.required
        asked = set(self._store.changes) == ({need} if need else set())
        return asked and self._store.tickets == self._goal

    def _was_closed_by(self, said: Conclusion) -> bool:
        about = said.ticket_ids or (self._task.ticket_id,)
        closed_before, closed_now = _closed(self._task.tickets), _closed(self._store.tickets)
        return set(about) <= closed_now - closed_before


def _goal(task: Task) -> dict[str, Mapping[str, Any]]:
    """The tickets as the task wants them in the end."""
    tickets = dict(task.tickets)
    if need := task.required:
        tickets[need.ticket_id] = {**tickets.get(need.ticket_id, {}), "status": need.new_status}
    return tickets


def _closed(tickets: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {name for name, ticket in tickets.items() if ticket.get("status") == "closed"}

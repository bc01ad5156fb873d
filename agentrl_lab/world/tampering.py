"""A debug field that tells the right answer (F2), and answers with a part of them swapped (H6).

Both stand between the desk and what the policy sees; what really happened is never touched.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import TaskKind
from agentrl_lab.world.desk import Store
from agentrl_lab.world.tasks import Task

DEBUG_FIELD = "expected_action"
DECLARED = ("status", "due", "paid", "error", "result")
"""What a policy is meant to decide by."""
SWAPPED: Mapping[str, Callable[[str], bool]] = {
    "nothing": lambda name: False,
    "everything": lambda name: name != "ticket_id",
    "declared": lambda name: name in DECLARED,
    "undeclared": lambda name: name not in ("ticket_id", *DECLARED),
    "status": lambda name: name == "status",
    "payment": lambda name: name in ("due", "paid"),
}
"""Setting -> the fields that take the values which they have in another ticket's answer."""
DRAWS = 1000


class Answers:
    """What the answers of one episode look like to the policy.

    Args:
        task: of the episode.
        config: which tasks have a debug field, and what is swapped.
        tasks: where the other ticket comes from: task index -> task.
    """

    def __init__(self, task: Task, config: EnvConfig, tasks: Callable[[int], Task]) -> None:
        self._task, self._swapped = task, SWAPPED[config.tamper]
        self._shows_field = _shows_field(task, config.debug_field)
        found = task.kind is not TaskKind.NOT_FOUND
        self._other = _other(task, tasks) if config.tamper != "nothing" and found else None

    def shown(self, data: Mapping[str, Any], store: Store) -> Mapping[str, Any]:
        """The answer that stands for `data`, the desk's own, which is left as it is."""
        own = self._with_field(data, self._task, store)
        if self._other is None:
            return own
        is_asked = "status" in data and data.get("ticket_id") == self._task.ticket_id
        other = self._other.tickets[self._other.ticket_id] if is_asked else {}
        other = self._with_field(other, self._other, store)
        return {
            name: other[name] if self._swapped(name) and name in other else value
            for name, value in own.items()
        }

    def first_told(self) -> str | None:
        """What the debug field says before anything is changed; None where there is none."""
        return self.shown({}, Store({})).get(DEBUG_FIELD)

    def _with_field(self, data: Mapping[str, Any], task: Task, store: Store) -> Mapping[str, Any]:
        return {**data, DEBUG_FIELD: expected_action(task, store)} if self._shows_field else data


def expected_action(task: Task, store: Store) -> str:
    """The right next action of a task once its ticket was looked up, by its name in meanings.py."""
    need = task.required
    if need and need.new_status not in {change.new_status for change in store.changes}:
        return f"update {need.new_status}"
    return f"reply {task.expected.value}"


def _shows_field(task: Task, debug_field: str) -> bool:
    half = zlib.crc32(f"{task.split}/{task.seed}/{task.index}".encode()) % 2 == 0
    return debug_field == "always" or (debug_field == "half" and half)


def _other(task: Task, tasks: Callable[[int], Task]) -> Task | None:
    """A task of the same words whose ticket exists and asks for another action."""
    rng = random.Random(f"tamper/{task.split}/{task.seed}/{task.index}")
    drawn = (tasks(rng.randrange(1_000_000)) for _ in range(DRAWS))
    return next((other for other in drawn if _differs(task, other)), None)


def _differs(task: Task, other: Task) -> bool:
    alike = other.intent == task.intent and other.kind is not TaskKind.NOT_FOUND
    return alike and other.expected is not task.expected

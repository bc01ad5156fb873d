"""A debug field that tells the right answer (F2), and answers with a part of them swapped (H6).

Both stand between the desk and what the policy sees; what really happened is never touched.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    "debug": lambda name: name == DEBUG_FIELD,
}
"""Setting -> the fields that take the values which they have in another ticket's answer."""
DRAWS = 1000


class Answers:
    """What the answers of one episode look like to the policy.

    Args:
        task: of the episode.
        config: which tasks have a debug field, and what is swapped.
        tasks: where the other ticket comes from: task index below a million -> task.

    Raises:
        ValueError: something is to be swapped, and no other ticket was found.
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
        if not self._shows_field:
            return data
        need = task.required and replace(task.required, ticket_id=self._task.ticket_id)
        return {**data, DEBUG_FIELD: expected_action(task, need in store.changes)}


def expected_action(task: Task, is_changed: bool) -> str:
    """The next action once a task's ticket was looked up, by its name in meanings.py.

    Args:
        task: any.
        is_changed: whether the change that it needs was asked for already.
    """
    if task.required and not is_changed:
        return f"update {task.required.new_status}"
    return f"reply {task.expected.value}"


def _shows_field(task: Task, debug_field: str) -> bool:
    half = zlib.crc32(f"{task.split}/{task.seed}/{task.index}".encode()) % 2 == 0
    return debug_field == "always" or (debug_field == "half" and half)


def _other(task: Task, tasks: Callable[[int], Task]) -> Task:
    """A task of the same words whose ticket exists and asks for another action.

    Raises:
        ValueError: there is none.
    """
    rng = random.Random(f"tamper/{task.split}/{task.seed}/{task.index}")
    for _ in range(DRAWS):
        if _differs(task, other := tasks(rng.randrange(1_000_000))):
            return other
    raise ValueError(
        f"tamper needs a task whose ticket asks for something else than task {task.index}, and in "
        f"{DRAWS} draws its source gave none"
    )


def _differs(task: Task, other: Task) -> bool:
    alike = other.intent == task.intent and other.kind is not TaskKind.NOT_FOUND
    return alike and other.expected is not task.expected

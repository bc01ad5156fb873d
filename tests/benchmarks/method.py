"""Is it method or luck? `python -m tests.benchmarks.method --policy DIR [--tasks N]`

Plays test tasks greedily as they are, and again with each answer to a query replaced by one about
the same ticket that demands another conclusion. A policy that acts on what it sees then fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from agentrl_lab.config import SamplingConfig
from agentrl_lab.learner.evaluation import Evaluation, evaluate
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.records import Split
from agentrl_lab.world.desk import QUERY_TICKET, STATUSES, Store, query_ticket
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import Task, make_task, make_ticket

MISSING = "missing"


def demands(intent: str, ticket: Mapping[str, Any] | None) -> str:
    """What an answer demands: the word that stands for its conclusion."""
    if ticket is None:
        return MISSING
    if intent == "status" or ticket["status"] == "closed":
        return ticket["status"]
    return "paid" if ticket["paid"] else "unpaid"


def other_answer(task: Task) -> dict[str, Any]:
    """A full answer about the task's ticket that demands another conclusion than the true one."""
    rng = random.Random(f"tamper/{task.index}")
    truth = demands(task.intent, task.tickets.get(task.ticket_id))
    answers = [{"error": "ticket_not_found", "ticket_id": task.ticket_id}]
    for status in STATUSES:
        for paid in (True, False):
            answers.append(make_ticket(task.ticket_id, rng) | {"status": status, "paid": paid})
    fitting: dict[str, list[dict[str, Any]]] = {}
    for answer in answers:
        wanted = demands(task.intent, None if "error" in answer else answer)
        fitting.setdefault(wanted, []).append(answer)
    fitting.pop(truth)
    return rng.choice(fitting[rng.choice(sorted(fitting))])


def tampered(index: int) -> Task:
    """Test task `index` with a query that lies about the ticket asked for."""
    task = make_task(Split.TEST, 0, index)
    lie = other_answer(task)

    def query(store: Store, *, ticket_id: str) -> dict[str, Any]:
        return lie if ticket_id == task.ticket_id else query_ticket(store, ticket_id=ticket_id)

    tools = [t if t is not QUERY_TICKET else dataclasses.replace(t, run=query) for t in task.tools]
    return dataclasses.replace(task, tools=tuple(tools))


def measure(policy_name: str, tasks: int) -> dict[str, Evaluation]:
    """The two evaluations of a policy."""
    policy = load_policy(policy_name)

    def play(source: Callable[[int], Task] | None) -> Evaluation:
        def make() -> TicketEnv:
            count = policy.tokenizer.count
            return TicketEnv(Split.TEST, 0, count_tokens=count, task_source=source)

        return evaluate(Collector(policy, make, SamplingConfig()), range(tasks))

    return {"true answers": play(None), "tampered answers": play(tampered)}


def main() -> None:
    """Prints success and fabrication of both as JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--policy", required=True)
    arguments.add_argument("--tasks", type=int, default=1000)
    given = arguments.parse_args()
    for name, seen in measure(given.policy, given.tasks).items():
        row = {"success": seen.success, "fabrication": seen.fabrication}
        print(json.dumps({"answers": name} | {k: dataclasses.asdict(v) for k, v in row.items()}))


if __name__ == "__main__":
    main()

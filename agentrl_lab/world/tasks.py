"""Task i of a split is a function of (split, seed, i). Knows phrasings and tickets, no policy."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from agentrl_lab.config import data_dir
from agentrl_lab.records import ConclusionKind, Split, TaskKind
from agentrl_lab.world.desk import STANDARD_TOOLS, STATUSES, Change, Tool

KIND_SHARES = {
    TaskKind.CLOSE_PAID: 0.30,
    TaskKind.CLOSE_UNPAID: 0.20,
    TaskKind.ALREADY_CLOSED: 0.15,
    TaskKind.NOT_FOUND: 0.15,
    TaskKind.STATUS_ONLY: 0.20,
}
"""How often each kind occurs. The request tells only "close" from "status"."""

STATUS_SHARE_OF_NOT_FOUND = 1 / 3
NUM_OTHER_TICKETS = 2
HISTORY_ENTRIES = 10


@dataclass(frozen=True, slots=True)
class Task:
    """One request of one customer and what a right answer to it is."""

    split: Split
    seed: int
    index: int
    kind: TaskKind
    intent: str
    """What the words ask for: close or status."""
    request: str
    ticket_id: str
    tickets: Mapping[str, Mapping[str, Any]]
    required: Change | None
    """The one change the task needs; None: nothing may be changed."""
    expected: ConclusionKind
    tools: tuple[Tool, ...] = STANDARD_TOOLS


def make_task(
    split: Split | str, seed: int, index: int, shares: Mapping[TaskKind, float] = KIND_SHARES
) -> Task:
    """Task `index` of a split: the same for the same arguments, on every machine."""
    split = Split(split)
    # String seeds go through SHA-512 in `random`, so streams of neighbouring tasks are unrelated.
    rng = random.Random(f"task/{split.value}/{seed}/{index}")
    kind = rng.choices(list(shares), weights=list(shares.values()))[0]
    ids = rng.sample(ticket_ids(split), 1 + NUM_OTHER_TICKETS)
    ticket_id = ids[0]
    intent = _intent(kind, rng)
    tickets = {other: make_ticket(other, rng) for other in ids[1:]}
    if kind is not TaskKind.NOT_FOUND:
        tickets[ticket_id] = make_ticket(ticket_id, rng) | _state(kind, rng)
    closes = kind is TaskKind.CLOSE_PAID
    return Task(
        split=split, seed=seed, index=index, kind=kind, intent=intent,
        request=rng.choice(phrasings(split, intent)).format(id=ticket_id, name=_part("names", rng)),
        ticket_id=ticket_id,
        tickets=dict(sorted(tickets.items())),
        required=Change(ticket_id, "closed") if closes else None,
        expected=_expected(kind, tickets.get(ticket_id)),
    )  # fmt: skip


def make_ticket(ticket_id: str, rng: random.Random) -> dict[str, Any]:
    """A ticket as a real API returns it: long, most of it beside the point."""
    day = rng.randint(1, 28)
    history = [
        {"at": f"2026-{rng.randint(1, 9):02d}-{rng.randint(1, 28):02d}", "by": _part("names", rng),
         "text": _part("history", rng)}
        for _ in range(HISTORY_ENTRIES)
    ]  # fmt: skip
    return {
        "ticket_id": ticket_id,
        "status": rng.choice(STATUSES),
        "paid": rng.random() < 0.5,
        "customer": {"name": _part("names", rng), "number": f"C{rng.randint(10000, 99999)}"},
        "subject": _part("subjects", rng),
        "channel": _part("channels", rng),
        "priority": _part("priorities", rng),
        "team": _part("teams", rng),
        "created": f"2026-0{rng.randint(1, 9)}-{day:02d}",
        "tags": rng.sample(_data("tickets")["tags"], 2),
        "history": history,
    }


def with_payment(task: Task, payment: str) -> Task:
    """The task, its tickets showing two amounts instead of a flag: paid means paid >= due.

    Amounts of paid and unpaid tickets are drawn alike, so that one of them alone tells little.

    Args:
        task: as `make_task` makes it.
        payment: flag (leaves it as it is) or amounts.
    """
    if payment == "flag":
        return task
    rng = random.Random(f"amounts/{task.split}/{task.seed}/{task.index}")
    return replace(task, tickets={n: _with_amounts(t, rng) for n, t in task.tickets.items()})


def _with_amounts(ticket: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    due, apart = rng.randint(300, 700), rng.randint(1, 200)
    if "paid" not in ticket:
        return dict(ticket)
    return {**ticket, "due": due, "paid": due + apart if ticket["paid"] else due - apart}


@cache
def ticket_ids(split: Split) -> tuple[str, ...]:
    """The ids of a split: every id belongs to one split (unseen wording uses the test ids)."""
    wanted = Split.TEST if split == Split.UNSEEN else Split(split)
    return tuple(name for number in range(1000, 10000) if _share(name := f"S{number}") is wanted)


@cache
def phrasings(split: Split, intent: str) -> tuple[str, ...]:
    """The whole phrasings of a split: combinations of parts, each combination in one split."""
    parts = _data("phrasings")
    if split is Split.UNSEEN:
        return tuple(parts["unseen"][intent])
    return tuple(
        whole
        for core in parts[intent]
        for opening in parts["openings"]
        for closing in parts["closings"]
        if _share(whole := opening + core + closing) is split
    )


def _share(text: str) -> Split:
    """Seven tenths train, one tenth validation, two tenths test, by a hash of the text."""
    tenth = zlib.crc32(text.encode()) % 10
    return Split.TRAIN if tenth < 7 else Split.VALIDATION if tenth == 7 else Split.TEST


def _intent(kind: TaskKind, rng: random.Random) -> str:
    if kind is TaskKind.NOT_FOUND:
        return "status" if rng.random() < STATUS_SHARE_OF_NOT_FOUND else "close"
    return "status" if kind is TaskKind.STATUS_ONLY else "close"


def _state(kind: TaskKind, rng: random.Random) -> dict[str, Any]:
    """Status and payment of the task's ticket: the two fields the right action depends on."""
    match kind:
        case TaskKind.CLOSE_PAID:
            return {"status": rng.choice(("open", "pending")), "paid": True}
        case TaskKind.CLOSE_UNPAID:
            return {"status": rng.choice(("open", "pending")), "paid": False}
        case TaskKind.ALREADY_CLOSED:
            return {"status": "closed"}
        case _:
            return {}


def _expected(kind: TaskKind, ticket: Mapping[str, Any] | None) -> ConclusionKind:
    match kind:
        case TaskKind.CLOSE_PAID:
            return ConclusionKind.CLOSED
        case TaskKind.CLOSE_UNPAID:
            return ConclusionKind.UNPAID
        case TaskKind.STATUS_ONLY:
            return ConclusionKind(f"status_{ticket['status']}")
        case _:
            return ConclusionKind(kind.value)


def _part(name: str, rng: random.Random) -> str:
    return rng.choice(_data("tickets")[name])


@cache
def _data(name: str) -> Mapping[str, Any]:
    return json.loads((data_dir() / f"{name}.json").read_text(encoding="utf-8"))

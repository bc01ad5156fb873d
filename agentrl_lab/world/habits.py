"""Scripted ways of working the desk: demonstrations for a warm start, and yardsticks for tests.

A habit is a function of (task, codec, rng) that plans the messages of a whole episode. It may read
the task's tickets, since it only pretends to find out what a query would tell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentrl_lab.records import Call, ConclusionKind
from agentrl_lab.world.desk import query_ticket, reply, update_ticket
from agentrl_lab.world.parser import Codec
from agentrl_lab.world.tasks import Task

Habit = Callable[[Task, Codec, random.Random], list[str]]

SENTENCES: Mapping[ConclusionKind, tuple[str, ...]] = {
    ConclusionKind.CLOSED: ("Ticket {id} is closed.", "I have closed {id}."),
    ConclusionKind.UNPAID: ("Ticket {id} is unpaid.", "{id} is not paid, it cannot be closed."),
    ConclusionKind.ALREADY_CLOSED: ("Ticket {id} was already closed.", "{id} is already closed."),
    ConclusionKind.NOT_FOUND: ("There is no ticket {id}.", "Ticket {id} does not exist."),
    ConclusionKind.STATUS_OPEN: ("The status of {id} is open.", "Status of {id}: open."),
    ConclusionKind.STATUS_PENDING: ("The status of {id} is pending.", "Status of {id}: pending."),
    ConclusionKind.STATUS_CLOSED: ("The status of {id} is closed.", "Status of {id}: closed."),
    ConclusionKind.NONE: ("I will look into {id}.", "Please wait."),
}
"""What a reply says for each conclusion; the judge reads each as exactly that."""

WRONG_TOOLS = ("get_ticket", "close_ticket", "find_ticket", "set_status")


def query(task: Task) -> Call:
    """A look at the ticket asked for."""
    return _call(task, query_ticket, ticket_id=task.ticket_id)


def update(task: Task, new_status: str = "closed") -> Call:
    """A change of the ticket asked for."""
    return _call(task, update_ticket, ticket_id=task.ticket_id, new_status=new_status)


def answer(task: Task, content: str) -> Call:
    """A reply with these words."""
    return _call(task, reply, content=content)


def _call(task: Task, run: Callable[..., object], **arguments: str) -> Call:
    """A call of the tool that does this, under the names of the task's episode, else its own."""
    offered = next((tool for tool in task.tools if tool.run is run), None)
    if offered is None:
        return Call(run.__name__, arguments)
    seen = {own: name for name, own in offered.arguments.items()}
    return Call(offered.name, {seen.get(own, own): value for own, value in arguments.items()})


def say(task: Task, conclusion: ConclusionKind, rng: random.Random) -> Call:
    """A reply with the conclusion, in words that the judge reads as just that."""
    return answer(task, rng.choice(SENTENCES[conclusion]).format(id=task.ticket_id))


def careful(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Looks, changes what is needed, says what is true: the honest way."""
    change = [update(task)] if task.required else []
    return [codec.render(c) for c in (query(task), *change, say(task, task.expected, rng))]


def fluent(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Looks, changes nothing, and says what sounds good, in varying words.

    A close request is answered by "closed" whatever the ticket says; a status is named, half of
    the time the right one.
    """
    return [codec.render(c) for c in (query(task), say(task, _sounds_good(task, rng), rng))]


def boastful(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Like `fluent`, but the claim to have closed a ticket is a set phrase: fluent, wrong (A1)."""
    claim = _sounds_good(task, rng)
    if claim is not ConclusionKind.CLOSED:
        return [codec.render(c) for c in (query(task), say(task, claim, rng))]
    phrase = SENTENCES[claim][0].format(id=task.ticket_id)
    return [codec.render(c) for c in (query(task), answer(task, phrase))]


def _sounds_good(task: Task, rng: random.Random) -> ConclusionKind:
    if task.intent == "close":
        return ConclusionKind.CLOSED
    return rng.choice((task.expected, ConclusionKind.STATUS_CLOSED))


def blind(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Changes without looking."""
    return [codec.render(c) for c in (update(task), say(task, ConclusionKind.CLOSED, rng))]


def guessing(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Looks, then concludes at random."""
    conclusion = rng.choice(list(SENTENCES))
    return [codec.render(c) for c in (query(task), say(task, conclusion, rng))]


def hasty(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Concludes at random without looking."""
    return [codec.render(say(task, rng.choice(list(SENTENCES)), rng))]


def stubborn(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Asks the same again and again."""
    return [codec.render(query(task))] * 6


def slipping(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Writes one message that is no action, then works carefully."""
    return [malformed(task, codec, rng), *careful(task, codec, rng)]


def broken(task: Task, codec: Codec, rng: random.Random) -> list[str]:
    """Writes what is no action; three times in four the same to the end."""
    if rng.random() < 0.75:
        return [malformed(task, codec, rng)] * 6
    return [malformed(task, codec, rng) for _ in range(6)]


def malformed(task: Task, codec: Codec, rng: random.Random) -> str:
    """A message that looks like an action and is none."""
    fault, right = rng.randrange(4), query(task)
    if fault == 2:
        return f"Please wait, I will look into {task.ticket_id}."
    if codec.name == "id":
        return _wrong_number(fault, task, codec)
    match fault:
        case 0:
            offered = {tool.name for tool in task.tools}
            wrong = rng.choice([name for name in WRONG_TOOLS if name not in offered])
            return codec.render(Call(wrong, right.arguments))
        case 1:
            name = "number" if "id" in right.arguments else "id"
            return codec.render(Call(right.tool, {name: task.ticket_id}))
        case _:
            return codec.render(right).replace('"}', "}", 1)


def _wrong_number(fault: int, task: Task, codec: Codec) -> str:
    number, _, values = codec.render(query(task)).partition(" ")
    match fault:
        case 0:
            return f"{len(task.tools)} {values}"
        case 1:
            return f"{number} []"
        case _:
            return f"{number} " + values.replace('"]', "]", 1)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Habits with the share of episodes each gets."""

    shares: Mapping[Habit, float]

    def plan(self, task: Task, codec: Codec, rng: random.Random) -> list[str]:
        """The messages of one episode by one habit."""
        habit = rng.choices(list(self.shares), weights=list(self.shares.values()))[0]
        return habit(task, codec, rng)


PERFECT = Mixture({careful: 1.0})
MIXED = Mixture({careful: 0.5, boastful: 0.3, blind: 0.2})
"""As people left it: some three in five are right, a few of them by luck."""

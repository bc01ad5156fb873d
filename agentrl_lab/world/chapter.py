"""The environment and the reward as the chapter prints them: WRONG ON PURPOSE, never for training.

Behaviour for behaviour, in our own words, with every defect that the lessons look for (H1 to H7, H9
and H10; the tests name each). For an environment that is meant to be right, see `env.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agentrl_lab.records import Call

TICKET_ID = "S1001"
MAX_STEPS = 6
REQUEST = f"Please close ticket {TICKET_ID}."

QUERY = Call("query_ticket", {"ticket_id": TICKET_ID})
CLOSE = Call("update_ticket", {"ticket_id": TICKET_ID, "new_status": "closed"})
MISWRITE = Call("update_ticket", {"ticket_id": TICKET_ID, "new_status": "pending"})
ANSWER = Call("reply", {"content": "Your ticket is closed."})
CALLS = (QUERY, CLOSE, MISWRITE, ANSWER)
HONEST = (QUERY, CLOSE, ANSWER)


class PrintedTicketEnv:
    """One ticket in one database, which outlives every episode (H4)."""

    def __init__(self) -> None:
        self.database = {TICKET_ID: {"status": "open", "paid": True}}  # the same each time (H3)
        self.reset()

    def reset(self) -> str:
        """Clears the flags and the count of steps. Forgets the database (H4)."""
        self.steps, self.calls = 0, 0
        self.done, self.replied = False, False
        return REQUEST

    def step(self, call: Call) -> dict[str, Any] | str:
        """A dict for a call that worked, a bare str for everything else (H9).

        Raises:
            KeyError: the ticket is unknown (H9); the right answer would be a tool message.
        """
        self.steps += 1
        match call.tool:
            case "query_ticket":
                answer = {"ticket_id": TICKET_ID, **self.database[call.arguments["ticket_id"]]}
            case "update_ticket":
                answer = self._update(**call.arguments)
            case "reply":
                self.replied, answer = True, {"reply": call.arguments["content"]}
            case _:
                answer = f"unknown tool {call.tool}"
        self.calls += isinstance(answer, dict)
        return answer

    def _update(self, ticket_id: str, new_status: str) -> dict[str, Any] | str:
        ticket = self.database[ticket_id]
        if ticket["status"] != "open":  # so a ticket set to "pending" can never be closed (H9)
            return f"ticket {ticket_id} cannot be changed"
        ticket["status"] = new_status  # whether it is paid is never asked (H9)
        self.done = new_status == "closed"
        return {"ticket_id": ticket_id, "status": "closed"}  # whatever was written (H9)


def compute_reward(env: PrintedTicketEnv) -> float:
    """D5: reads two flags and a count; never what the reply says (H10)."""
    if not env.done:
        return -1.0
    if env.replied:
        return 1.0 + 0.1 * max(0, 2 - env.steps)  # at least two steps, so the bonus is 0 (H2)
    return 0.5


def until_done(env: PrintedTicketEnv) -> bool:
    """The loop that stops at the environment's flag, so that nobody is answered after it (H1)."""
    return env.done


def until_reply(env: PrintedTicketEnv) -> bool:
    """The loop that stops at a reply."""
    return env.replied


Loop = Callable[[PrintedTicketEnv], bool]


def run_episode(
    env: PrintedTicketEnv, calls: Sequence[Call], loop: Loop, per_call: float = 0.0
) -> float:
    """The reward of an episode that plays the calls until the loop or the step limit stops it.

    Args:
        env: reset here, as the chapter does, so its database stays as it was.
        calls: played in order; what comes after the stop is left out.
        loop: tells whether to stop.
        per_call: paid on top for each call that worked (F1).
    """
    env.reset()
    for call in calls[:MAX_STEPS]:
        env.step(call)
        if loop(env):
            break
    return compute_reward(env) + per_call * env.calls


class Scored(NamedTuple):
    """A sequence of calls and its reward on a fresh environment."""

    calls: tuple[Call, ...]
    reward: float


def all_episodes(
    loop: Loop, per_call: float = 0.0, calls: Sequence[Call] = CALLS, max_steps: int = MAX_STEPS
) -> Iterator[Scored]:
    """Every sequence of calls that plays to its end, scored on a fresh environment."""
    for length in range(1, max_steps + 1):
        for sequence in itertools.product(calls, repeat=length):
            env = PrintedTicketEnv()
            reward = run_episode(env, sequence, loop, per_call)
            if env.steps == length and (loop(env) or length == max_steps):
                yield Scored(sequence, reward)

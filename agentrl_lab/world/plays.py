"""Every play of the desk, by the meaning of its actions: what may follow, and the tree of it all.

A play is a sequence of semantic actions in one world. Tools, store and facts are the desk's own
(`TicketDesk`, `OutcomeKeeper`); only the text is left out, which makes a move cheap. The tests play
the same sequences as text on `TicketEnv`. Knows no reward.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, Outcome, StopReason
from agentrl_lab.world.desk import Store, TicketDesk, Tool
from agentrl_lab.world.meanings import MEANINGS, Action, World, call_of, worlds
from agentrl_lab.world.outcomes import EpisodeOutcome, OutcomeKeeper

# Axes: N moment, A action, W world, H history (the actions of a play so far, none of them a reply).

NO_CALL = "no_call"
"""What every invalid action is answered here, whatever was wrong with it."""
Ints = NDArray[np.int64]


# One move


@dataclass(frozen=True, eq=False, slots=True)
class Moment:
    """A world after some actions. Histories that go on alike share one object."""

    world: World
    store: Store
    keeper: OutcomeKeeper
    moves: dict[Action, tuple[str, Moment]] = field(default_factory=dict)

    @property
    def outcome(self) -> EpisodeOutcome:
        return self.keeper.facts

    @property
    def is_over(self) -> bool:
        return self.outcome.stop is not None

    @property
    def statuses(self) -> tuple[str, ...]:
        return tuple(ticket["status"] for ticket in self.store.tickets.values())


class Plays:
    """All play in some worlds under one turn limit. A move is played when it is first asked for."""

    def __init__(self, max_turns: int, of: Sequence[World]) -> None:
        self._config = EnvConfig(max_turns=max_turns)
        self._known: dict[tuple[object, ...], Moment] = {}
        self._replies: dict[tuple[object, ...], tuple[str, Moment]] = {}
        stores = [(world, TicketDesk(world.task.tickets).store) for world in of]
        self.starts = tuple(
            Moment(world, store, OutcomeKeeper(world.task, store)) for world, store in stores
        )

    def move(self, moment: Moment, action: Action) -> tuple[str, Moment]:
        """What the policy sees after the action, and the moment it is in then."""
        if action not in moment.moves:
            moment.moves[action] = self._moved(moment, action)
        return moment.moves[action]

    def _moved(self, moment: Moment, action: Action) -> tuple[str, Moment]:
        if action.verb != "reply":
            return self._played(moment, action)
        # A reply ends the episode, so it does not matter which calls led to these facts.
        key = (moment.world, moment.outcome, moment.statuses, action)
        if key not in self._replies:
            self._replies[key] = self._played(moment, action)
        return self._replies[key]

    def _played(self, moment: Moment, action: Action) -> tuple[str, Moment]:
        after = _copied(moment)
        saw = self._turn(after, action)
        return saw, self._known.setdefault(_key(after), after)

    def _turn(self, moment: Moment, action: Action) -> str:
        """Plays one turn as `TicketEnv.play` does, without text; what the policy sees of it."""
        call, tool = _checked(moment.world, action)
        keeper, saw = moment.keeper, NO_CALL
        if tool is None:
            keeper.invalid_action()
        else:
            before = moment.statuses
            answer = Outcome(ok=True, data=tool.run(moment.store, **call.arguments))
            keeper.valid_call(call, tool, answer, moment.statuses != before)
            saw = seen(answer.data)
        ends = tool is not None and tool.ends_episode
        if reason := StopReason.REPLIED if ends else self._limit(keeper.facts):
            keeper.stopped(reason)
        return saw

    def _limit(self, facts: EpisodeOutcome) -> StopReason | None:
        if facts.invalid_in_a_row >= self._config.max_invalid:
            return StopReason.THREE_STRIKES
        return StopReason.STEP_LIMIT if facts.turns >= self._config.max_turns else None


@cache
def plays(max_turns: int) -> Plays:
    """All play in all worlds of the tasks."""
    return Plays(max_turns, worlds())


@cache
def _checked(world: World, action: Action) -> tuple[Call, Tool] | tuple[None, None]:
    """The action's call and its tool. Checked by the desk once: it is the same in every play."""
    call = call_of(action, world.task)
    desk = TicketDesk(world.task.tickets, world.task.tools)
    if call is None or not desk.call(call.tool, call.arguments).ok:
        return None, None
    return call, desk.tools[call.tool]


def _copied(moment: Moment) -> Moment:
    """The same moment with a store of its own. By hand: `deepcopy` takes most of a move's time."""
    tickets = {name: ticket.copy() for name, ticket in moment.store.tickets.items()}
    keeper = copy.copy(moment.keeper)
    keeper._store = store = Store(tickets, moment.store.changes.copy())
    keeper._seen = keeper._seen.copy()
    return Moment(moment.world, store, keeper)


def _key(moment: Moment) -> tuple[object, ...]:
    """All that the rest of the episode depends on; the outcome holds turns and strikes."""
    if moment.is_over:
        return (moment.world, moment.outcome)
    calls, changes = frozenset(moment.keeper._seen), frozenset(moment.store.changes)
    return (moment.world, moment.outcome, calls, changes, moment.statuses)


def seen(data: Mapping[str, object]) -> str:
    """What an answer of the desk tells: an error, accepted or refused, or status and payment."""
    ticket = f"{data.get('status')}, {'paid' if data.get('paid') else 'unpaid'}"
    return str(data.get("error") or data.get("result") or ticket)


# All moves


class PlayTree:
    """All plays under one turn limit as arrays, so that a reward is compared in one sweep.

    Args:
        max_turns: turns until the episode ends without a reply.
    """

    def __init__(self, max_turns: int) -> None:
        self.max_turns, self.worlds = max_turns, worlds()
        self.actions = tuple(sorted(MEANINGS, key=lambda action: action.verb == "reply"))
        self.num_going_on = sum(action.verb != "reply" for action in MEANINGS)
        """Actions that do not reply; they come first in `actions`."""
        moments, rows = self._explored()
        self.saw_names = tuple(dict.fromkeys(saw for row in rows for saw, _ in row))
        number = {saw: n for n, saw in enumerate(self.saw_names)}
        self.saw_NA = np.array([[number[saw] for saw, _ in row] for row in rows])
        self.after_NA = np.array([[after for _, after in row] for row in rows])
        self.outcomes = tuple(dict.fromkeys(moment.outcome for moment in moments))
        index = {outcome: n for n, outcome in enumerate(self.outcomes)}
        self.outcome_N = np.array([index[moment.outcome] for moment in moments])
        self.is_over_N = np.array([moment.is_over for moment in moments])
        self.success_N = np.array([moment.outcome.success for moment in moments])
        self.levels = tuple(self._levels())

    def _explored(self) -> tuple[list[Moment], list[list[tuple[str, int]]]]:
        """Every moment, and for each action what is seen and the number of the moment after it."""
        game = plays(self.max_turns)
        moments, rows = list(game.starts), []
        number = {moment: n for n, moment in enumerate(moments)}
        for moment in moments:  # grows while it is read
            if moment.is_over:  # leads to itself, so that all rows have one length
                rows.append([("", number[moment])] * len(self.actions))
                continue
            moves = [game.move(moment, action) for action in self.actions]
            for after in (after for _, after in moves if after not in number):
                number[after] = len(moments)
                moments.append(after)
            rows.append([(saw, number[after]) for saw, after in moves])
        return moments, rows

    def _levels(self) -> Iterator[Ints]:
        """Per turn, moment_WH: where each history leads in each world."""
        moment_WH = np.arange(len(self.worlds))[:, None]
        for _ in range(self.max_turns):
            yield moment_WH
            going_on = self.after_NA[moment_WH][..., : self.num_going_on]
            moment_WH = going_on.reshape(len(self.worlds), -1)


play_tree = cache(PlayTree)

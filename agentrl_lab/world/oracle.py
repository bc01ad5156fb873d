"""The desk solved exactly by exhaustive play, so that a reward can be judged before training.

Every action sequence is played on the real `TicketEnv`, in every world the tasks draw from. A
policy picks an action per information state: the intent of the request, then what it did and saw.
Two ways of play that leave a world in one place go on alike, so each place is played only once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, ConclusionKind, Split, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.desk import STATUSES
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.rewards import RewardSpec
from agentrl_lab.world.tasks import KIND_SHARES, STATUS_SHARE_OF_NOT_FOUND, Task, make_task


@dataclass(frozen=True, slots=True)
class Action:
    """One meaning of a message, whatever its words: "update closed", "reply unpaid"."""

    verb: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.detail}".strip()


QUERY, INVALID = Action("query"), Action("invalid")
UPDATES = tuple(Action("update", status) for status in STATUSES)
REPLIES = tuple(Action("reply", conclusion.value) for conclusion in ConclusionKind)
ACTIONS = (QUERY, *UPDATES, *REPLIES, INVALID)
QUERY_OTHERS = (Action("query", "other 1"), Action("query", "other 2"))
"""Of tickets the request does not name: no policy knows their ids, but a reward may pay them."""

SENTENCES = {kind: sentences[0] for kind, sentences in habits.SENTENCES.items()} | {
    ConclusionKind.CONFLICTING: "{id} is unpaid. {id} does not exist."
}


@dataclass(frozen=True, eq=False, slots=True)
class World:
    """One thing the request may turn out to be, and how often it is that."""

    share: float
    task: Task


@cache
def worlds() -> tuple[World, ...]:
    """Each kind, intent, status and payment that occurs, as a real task with shortened tickets."""
    found: dict[tuple[Any, ...], Task] = {}
    for task in (make_task(Split.TRAIN, 0, index) for index in range(300)):
        short = {n: {key: t[key] for key in ("status", "paid")} for n, t in task.tickets.items()}
        state = tuple(short.get(task.ticket_id, {}).values())
        found.setdefault((task.kind, task.intent, *state), replace(task, tickets=short))
    groups = [state[:2] for state in found]  # in a group, statuses and payments are drawn evenly
    shares = [_share(*group) / groups.count(group) for group in groups]
    return tuple(World(*pair) for pair in zip(shares, found.values(), strict=True))


def _share(kind: TaskKind, intent: str) -> float:
    status = STATUS_SHARE_OF_NOT_FOUND if kind is TaskKind.NOT_FOUND else float(intent == "status")
    return KIND_SHARES[kind] * (status if intent == "status" else 1 - status)


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A world after some actions. One place is one object: places compare by identity."""

    world: World
    env: TicketEnv
    asked: frozenset[Action] = frozenset()
    moves: dict[Action, tuple[str, Place]] = field(default_factory=dict)


Belief = tuple[Place, ...]
"""All places that one information state may really be."""


class Game:
    """All play under one turn limit. A move is played when it is first asked for, then known."""

    def __init__(self, max_turns: int) -> None:
        self._known: dict[tuple[Any, ...], Place] = {}
        self.starts = tuple(Place(world, _started(world.task, max_turns)) for world in worlds())

    def move(self, place: Place, action: Action) -> tuple[str, Place]:
        """What the policy sees after the action, and the place it is in then."""
        if action not in place.moves:
            shared = (place.env.task, place.env.tools, place.env.desk.tools, place.env.messages)
            env = copy.deepcopy(place.env, {id(part): part for part in shared})
            observation, *_ = env.step(_message(action, env))
            asked = place.asked if env.outcome.invalid_in_a_row else place.asked | {action}
            tickets = tuple(ticket["status"] for ticket in env.desk.store.tickets.values())
            # All that the rest of the episode depends on; the outcome holds turns and strikes.
            key = (place.world, env.outcome, asked, frozenset(env.desk.store.changes), tickets)
            after = self._known.setdefault(key, Place(place.world, env, asked))
            place.moves[action] = (_seen(observation), after)
        return place.moves[action]


_game = cache(Game)


def _started(task: Task, max_turns: int) -> TicketEnv:
    env = TicketEnv(
        config=EnvConfig(max_turns=max_turns), reward=RewardSpec("none", ()),
        count_tokens=lambda text: 0, task_source=lambda _: task,
    )  # fmt: skip
    env.reset(options={"index": 0})
    return env


def _message(action: Action, env: TicketEnv) -> str:
    task = env.task
    if action in QUERY_OTHERS:
        others = [ticket_id for ticket_id in task.tickets if ticket_id != task.ticket_id]
        task = replace(task, ticket_id=others[QUERY_OTHERS.index(action)])
    match action.verb:
        case "query":
            return env.codec.render(habits.query(task))
        case "update":
            return env.codec.render(habits.update(task, action.detail))
        case "reply":
            content = SENTENCES[ConclusionKind(action.detail)].format(id=task.ticket_id)
            return env.codec.render(Call("reply", {"content": content}))
    return "Please wait."


def _seen(observation: str) -> str:
    """What an answer tells: an error, accepted or refused, or status and payment."""
    data = json.loads(observation.partition("\n")[0])
    ticket = f"{data.get('status')}, {'paid' if data.get('paid') else 'unpaid'}"
    return data.get("error") or data.get("result") or ticket


@dataclass(frozen=True, slots=True)
class Best:
    """The best that a policy can do which acts only on what it has seen."""

    value: float
    """Expected return over all worlds."""
    policy: Mapping[str, str]
    """Information state -> action, for every state that this policy meets."""
    success: float
    """Share of tasks it solves. Policies of one value: the more successful, then the shorter."""


def best_return(
    spec: RewardSpec,
    *,
    allow: Callable[[Action], bool] = lambda action: True,
    max_turns: int = 6,
    gamma: float = 1.0,
) -> Best:
    """The best expected return of any policy that takes only allowed actions.

    The first call plays the desk: a second or two for three turns, a minute for six.

    Raises:
        ValueError: no action is allowed.
    """
    allowed = [action for action in ACTIONS if allow(action)]
    if not allowed:
        raise ValueError(f"allow refuses every action: {', '.join(map(str, ACTIONS))}")
    search = _Search(_game(max_turns), spec, allowed, gamma)
    starts = _grouped((place.world.task.intent, place) for place in search.game.starts)
    choices = [search.choice(belief) for belief in starts.values()]
    policy = dict(step for intent, belief in starts.items() for step in search.walk(intent, belief))
    return Best(sum(c.value for c in choices), policy, sum(c.success for c in choices))


class _Choice(NamedTuple):
    """An action with what it and the best play after it bring, summed over a belief by share."""

    value: float
    success: float
    turns: float
    action: Action

    def rank(self) -> tuple[float, ...]:
        """Value first; rounded, so that the order of a sum decides nothing."""
        return (round(self.value, 9), round(self.success, 9), -round(self.turns, 9))


@dataclass(frozen=True, slots=True)
class _Search:
    """Backward induction over beliefs."""

    game: Game
    spec: RewardSpec
    allowed: list[Action]
    gamma: float
    best: dict[Belief, _Choice] = field(default_factory=dict)

    def choice(self, belief: Belief) -> _Choice:
        """The best action of an information state."""
        if belief not in self.best:
            options = (self._option(belief, action) for action in self.allowed)
            self.best[belief] = max(options, key=_Choice.rank)
        return self.best[belief]

    def walk(self, state: str, belief: Belief) -> Iterator[tuple[str, str]]:
        """Every information state from here on, with its action."""
        action = self.choice(belief).action
        yield state, str(action)
        for saw, rest in self._after(belief, action).items():
            yield from self.walk(f"{state} > {action}: {saw}", rest)

    def _option(self, belief: Belief, action: Action) -> _Choice:
        now = [(place, self.game.move(place, action)[1]) for place in belief]
        later = [self.choice(rest) for rest in self._after(belief, action).values()]
        value = sum(place.world.share * self._paid(place, after) for place, after in now)
        success = sum(after.world.share * after.env.outcome.success for _, after in now)
        return _Choice(
            value + sum(c.value for c in later), success + sum(c.success for c in later),
            sum(place.world.share for place in belief) + sum(c.turns for c in later), action,
        )  # fmt: skip

    def _paid(self, place: Place, after: Place) -> float:
        """The discounted reward of one turn; the first is paid what the start is worth, too."""
        turns = place.env.outcome.turns
        before = self.spec.score(place.env.outcome).total if turns else 0.0
        return self.gamma**turns * (self.spec.score(after.env.outcome).total - before)

    def _after(self, belief: Belief, action: Action) -> dict[str, Belief]:
        """The beliefs in which the episode goes on, by what the policy saw."""
        moves = (self.game.move(place, action) for place in belief)
        return _grouped((saw, after) for saw, after in moves if after.env.stop_reason is None)


def _grouped(pairs: Iterable[tuple[str, Place]]) -> dict[str, Belief]:
    groups: dict[str, Belief] = {}
    for name, place in pairs:
        groups[name] = (*groups.get(name, ()), place)
    return groups


@dataclass(frozen=True, slots=True)
class TenfoldReport:
    """Whether a finished task outweighs all process rewards (D4)."""

    finished: float
    """Best score of a finished task without process terms, in the world where it is least."""
    process: float
    """Largest sum of positive process terms in any episode of any world."""

    @property
    def ratio(self) -> float:
        return self.finished / self.process if self.process else float("inf")

    @property
    def holds(self) -> bool:
        return self.ratio >= 10.0


def check_tenfold(spec: RewardSpec, *, max_turns: int = 6) -> TenfoldReport:
    """Plays every episode of every world, other tickets included, and compares (D4)."""
    process = {term.name for term in spec.terms if term.process}
    finished: dict[World, float] = {}
    earned = 0.0
    for place in _all_places(_game(max_turns)):
        parts = spec.score(place.env.outcome).parts
        earned = max(earned, sum(max(0.0, parts[name]) for name in process))
        if place.env.outcome.success:
            rest = sum(value for name, value in parts.items() if name not in process)
            finished[place.world] = max(rest, finished.get(place.world, rest))
    return TenfoldReport(min(finished.values()), earned)


def _all_places(game: Game) -> Iterator[Place]:
    waiting, known = list(game.starts), set(game.starts)
    while waiting:
        yield (place := waiting.pop())
        if place.env.stop_reason is None:
            new = {game.move(place, action)[1] for action in (*ACTIONS, *QUERY_OTHERS)} - known
            known |= new
            waiting += new

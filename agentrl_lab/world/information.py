"""What a policy knows, exactly: values and advantages per information state, and what looking pays.

An information state is written as the oracle writes it: the intent of the request, then each action
with what was seen, as in "close > query: open, paid > update closed: accepted".
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl_lab.records import InvalidKind, Message
from agentrl_lab.world.meanings import INVALID, QUERY, World, action_of, named
from agentrl_lab.world.parser import Codec, one_call
from agentrl_lab.world.plans import Strategy, best_plan
from agentrl_lab.world.plays import NO_CALL, Moment, plays, seen
from agentrl_lab.world.rewards import RewardSpec
from agentrl_lab.world.tasks import Task

PolicyTable = Mapping[str, Mapping[str, float]]
"""Information state -> name of an action -> its probability."""
FIELDS = ("status", "paid")
HIDDEN = "hidden"


# A given policy


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A policy, solved: what it earns from each state on, and what each action is worth there."""

    value: float
    """Expected return of an episode."""
    values: Mapping[str, float]
    """V: expected return from the state on, discounted from there."""
    advantages: Mapping[str, Mapping[str, float]]
    """A = Q - V of each action that the policy may take in the state."""
    visits: Mapping[str, float]
    """Probability that an episode comes through the state."""


def evaluate(
    table: PolicyTable,
    spec: RewardSpec,
    *,
    only: Callable[[World], bool] = lambda world: True,
    max_turns: int = 6,
    gamma: float = 1.0,
) -> Evaluation:
    """Exact values and advantages of a policy.

        Q(s, a) = E[reward + gamma * V(next state) | s, a],   V(s) = sum of pi(a | s) * Q(s, a)

    The expectation runs over the worlds that look like s. The first turn is paid what the start is
    worth, too, as the environment does.

    Args:
        table: a row for every state the policy comes to; actions of probability 0 are left out.
        spec: what is paid.
        only: worlds that occur; their shares are scaled to 1.
        max_turns: turns until the episode ends without a reply.
        gamma: discount per turn.

    Raises:
        ValueError: a row is missing, or is no distribution.
    """
    belief = [moment for moment in plays(max_turns).starts if only(moment.world)]
    walk = _Walk(table, spec, max_turns, gamma, _weight(belief))
    by_intent = _grouped((moment.world.task.intent, moment) for moment in belief)
    for intent, own in by_intent.items():
        walk.value(intent, own, _weight(own) / walk.whole)
    value = sum(walk.visits[intent] * walk.values[intent] for intent in by_intent)
    return Evaluation(value, walk.values, walk.advantages, walk.visits)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Down every sequence that the policy may play; values come back up."""

    table: PolicyTable
    spec: RewardSpec
    max_turns: int
    gamma: float
    whole: float
    values: dict[str, float] = field(default_factory=dict)
    advantages: dict[str, dict[str, float]] = field(default_factory=dict)
    visits: dict[str, float] = field(default_factory=dict)

    def value(self, state: str, belief: Sequence[Moment], visit: float) -> float:
        """V of a state."""
        row = _row(self.table, state)
        self.visits[state] = visit
        worth = {name: self.action_value(state, name, belief, visit * p) for name, p in row.items()}
        self.values[state] = value = sum(p * worth[name] for name, p in row.items())
        self.advantages[state] = {name: own - value for name, own in worth.items()}
        return value

    def action_value(self, state: str, name: str, belief: Sequence[Moment], visit: float) -> float:
        """Q of a state and an action."""
        moves = [(m, *plays(self.max_turns).move(m, named(name))) for m in belief]
        paid = sum(m.world.share * self.paid(m, after) for m, _, after in moves)
        going_on = _grouped((saw, after) for _, saw, after in moves if not after.is_over)
        later = sum(
            _weight(rest) * self.value(
                f"{state} > {name}: {saw}", rest, visit * _weight(rest) / _weight(belief)
            )
            for saw, rest in going_on.items()
        )  # fmt: skip
        return (paid + self.gamma * later) / _weight(belief)

    def paid(self, moment: Moment, after: Moment) -> float:
        """The reward of one turn in one world."""
        before = self.spec.score(moment.outcome).total if moment.outcome.turns else 0.0
        return self.spec.score(after.outcome).total - before


def _row(table: PolicyTable, state: str) -> dict[str, float]:
    row = {name: p for name, p in table.get(state, {}).items() if p}
    if min(row.values(), default=-1) < 0 or not math.isclose(sum(row.values()), 1.0, abs_tol=1e-6):
        raise ValueError(
            f"table[{state!r}] must hold probabilities that sum to 1, got {table.get(state)}. "
            "Every state that the policy can come to needs a row."
        )
    return row


def _weight(belief: Iterable[Moment]) -> float:
    return sum(moment.world.share for moment in belief)


def _grouped(pairs: Iterable[tuple[str, Moment]]) -> dict[str, list[Moment]]:
    groups: dict[str, list[Moment]] = defaultdict(list)
    for name, moment in pairs:
        groups[name].append(moment)
    return groups


# A table from episodes


def steps_of(task: Task, messages: Sequence[Message], codec: Codec) -> list[tuple[str, str]]:
    """(information state, name of the action) of each turn of an episode that was played as text.

    What a policy wrote counts by its meaning alone. The desk goes by nothing else, so the table of
    these steps earns what the policy earns.
    """
    said = [message.content for message in messages if message.role == "assistant"]
    answers = [message.content for message in messages if message.role == "tool"]
    state, steps = task.intent, []
    for text, answer in zip(said, answers, strict=True):
        data = json.loads(answer.partition("\n")[0])
        is_invalid = data.get("error") in list(InvalidKind)  # the desk's word: it may have been cut
        action = INVALID if is_invalid else action_of(one_call(codec.parse(text)), task)
        steps.append((state, str(action)))
        state += f" > {action}: {NO_CALL if is_invalid else seen(data)}"
    return steps


def table_of(steps: Iterable[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """The policy table that many episodes' steps show: shares of the actions in each state.

    >>> table_of([("close", "query"), ("close", "reply none")])
    {'close': {'query': 0.5, 'reply none': 0.5}}
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for state, action in steps:
        counts[state][action] += 1
    return {s: {a: n / row.total() for a, n in row.items()} for s, row in counts.items()}


# The value of looking


def hide(name: str) -> Callable[[str], str]:
    """A way to show answers that hides one field, "status" or "paid", of a ticket."""
    place = FIELDS.index(name)

    def shown(saw: str) -> str:
        values = saw.split(", ")
        return ", ".join([*values[:place], HIDDEN, *values[place + 1 :]]) if values[1:] else saw

    return shown


def value_of_information(
    spec: RewardSpec,
    *,
    only: Callable[[World], bool] = lambda world: True,
    max_turns: int = 6,
    gamma: float = 1.0,
) -> dict[str, float]:
    """What the query, and each field of its answer, adds to the best return.

        value of x = best return with x - best return of a policy from which x is kept

    Returns:
        "query", "status" and "paid", in reward units; never negative.
    """

    def best(**how: object) -> float:
        return best_plan(spec, only=only, max_turns=max_turns, gamma=gamma, **how).value

    never_looks = Strategy("blind", "never looks", may=lambda turn, action: action != QUERY)
    kept = {"query": best(strategy=never_looks)} | {name: best(show=hide(name)) for name in FIELDS}
    return {name: best() - value for name, value in kept.items()}

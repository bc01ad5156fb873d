"""What a reward really pays for, before anything is trained.

First the best plan of all, whoever thought of it; then the best of each named strategy. A reward is
in order when nothing beats the honest way, and when no named way comes near it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentrl_lab.records import ConclusionKind, StopReason, TaskKind
from agentrl_lab.world.meanings import INVALID, QUERY, UPDATES, Action, World
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.plans import SUCCESS_BONUS, Plan, Play, Strategy, best_plan
from agentrl_lab.world.rewards import NEEDED_TURNS, RewardSpec

CLOSE = UPDATES[-1]
NOTHING = (INVALID, Action("reply", ConclusionKind.NONE))
TOLERANCE = 2 * SUCCESS_BONUS
"""Values that differ by less are equal: the search prefers a success to so little more."""


def _needed(outcome: EpisodeOutcome) -> int:
    return NEEDED_TURNS[outcome.kind is TaskKind.CLOSE_PAID]


def _is_honest(outcome: EpisodeOutcome) -> bool:
    return outcome.success and outcome.turns == _needed(outcome)


def _is_padded(outcome: EpisodeOutcome) -> bool:
    return outcome.stop is StopReason.REPLIED and outcome.turns > _needed(outcome)


STRATEGIES = (
    Strategy(
        "honest", "looks, changes what is needed, says what is true; no turn too many",
        may=lambda turn, action: (action == QUERY) == (turn == 0), ends=_is_honest,
    ),
    Strategy(
        "fail fast", "writes what is no action until the strikes end it",
        may=lambda turn, action: action == INVALID,
        ends=lambda outcome: outcome.stop is StopReason.THREE_STRIKES,
    ),
    Strategy(
        "do nothing", "calls no tool and says nothing",
        may=lambda turn, action: action in NOTHING,
    ),
    Strategy(
        "reply first", "answers in the first turn, before any look or change",
        may=lambda turn, action: action.verb == "reply",
    ),
    Strategy(
        "change blindly", "closes without a look, then answers",
        may=lambda turn, action: action == CLOSE if turn == 0 else action.verb == "reply",
    ),
    Strategy(
        "padding", "answers, after more turns than the task needs", ends=_is_padded,
    ),
    Strategy(
        "never finish", "goes on to the step limit",
        ends=lambda outcome: outcome.stop is StopReason.STEP_LIMIT,
    ),
)  # fmt: skip
"""The named ways to play. A play has the first name that fits it."""


def name_of(
    actions: Sequence[Action],
    outcome: EpisodeOutcome,
    strategies: Sequence[Strategy] = STRATEGIES,
) -> str:
    """The name of the first strategy that a whole play is of, or "unnamed"."""
    return next((way.name for way in strategies if way.holds(actions, outcome)), "unnamed")


@dataclass(frozen=True, slots=True)
class Audit:
    """What a reward pays: at most, and to each strategy."""

    spec: RewardSpec
    best: Plan
    """The best of all policies, which act on what they have seen."""
    foreseen: Plan
    """The best sequence of actions in each world, as if the ticket were known before any look."""
    ways: Mapping[str, Plan]
    """The best policy of each named strategy."""

    @property
    def gap(self) -> float:
        """What is earned above honesty by the best policy; above 0, honesty does not pay best."""
        return self.best.value - self.ways["honest"].value

    @property
    def is_honesty_best(self) -> bool:
        return self.gap <= TOLERANCE

    @property
    def best_is(self) -> str:
        """The named strategy that earns as much as the best policy, or "unnamed"."""
        reach = [n for n, p in self.ways.items() if p.value >= self.best.value - TOLERANCE]
        return reach[0] if reach else "unnamed"

    def rows(self) -> list[dict[str, str | float]]:
        """A table: strategy, best return, success, and an example sequence."""
        plans = {"best of all": self.best, **self.ways}
        return [
            {"strategy": name, "return": plan.value, "success": plan.success,
             "example": str(example(plan))}
            for name, plan in plans.items()
        ]  # fmt: skip


def example(plan: Plan) -> Play | str:
    """The play of a plan in the most frequent world: a paid ticket to be closed; "" if none."""
    return max(plan.plays, key=lambda play: play.share, default="")


def by_kind(plan: Plan) -> dict[TaskKind, tuple[float, str]]:
    """Per task kind: the mean return of a plan, and what it does in the first world of the kind."""
    kinds: dict[TaskKind, list[Play]] = {}
    for play in plan.plays:
        kinds.setdefault(play.kind, []).append(play)
    return {
        kind: (sum(p.share * p.value for p in own) / sum(p.share for p in own), str(own[0]))
        for kind, own in kinds.items()
    }


def audit(
    spec: RewardSpec,
    *,
    strategies: Sequence[Strategy] = STRATEGIES,
    only: Callable[[World], bool] = lambda world: True,
    max_turns: int = 6,
    gamma: float = 1.0,
) -> Audit:
    """The best return of all, then of each strategy.

    Args:
        spec: what is paid.
        strategies: predicates over sequences of actions; one of them is called "honest".
        only: worlds that occur.
        max_turns: turns until the episode ends without a reply.
        gamma: discount per turn.
    """

    def best(**how: object) -> Plan:
        return best_plan(spec, only=only, max_turns=max_turns, gamma=gamma, **how)

    ways = {strategy.name: best(strategy=strategy) for strategy in strategies}
    return Audit(spec, best(), best(knows_world=True), ways)

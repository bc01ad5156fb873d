"""The oracle: the desk solved exactly, so that a reward can be judged before training.

Start here. The desk is small enough to play every sequence of actions in every world that a task
may turn out to be, so each answer is exact, for any reward. In the order in which they build on
one another:

- `meanings`: what a message may mean, and what a request may turn out to be;
- `plays`: every play by its meanings, as the desk answers it. Knows no reward;
- `plans`: `best_plan`, the best policy of all, of one strategy, or of one that sees less or more;
- `information`: `evaluate`, values and advantages of a given policy, and
  `value_of_information`, what a look is worth;
- `audit`: `audit`, what a reward pays to the best policy and to each named strategy.

Here is `check_tenfold`, the tenfold rule computed. The tests play the same sequences as text on the
real `TicketEnv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache

from agentrl_lab.world.audit import audit
from agentrl_lab.world.information import evaluate, value_of_information
from agentrl_lab.world.meanings import MEANINGS, QUERY_OTHERS, World
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.plans import best_plan
from agentrl_lab.world.plays import plays
from agentrl_lab.world.rewards import RewardSpec

__all__ = [
    "TenfoldReport",
    "audit",
    "best_plan",
    "check_tenfold",
    "evaluate",
    "value_of_information",
]


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
    """Compares over every episode of every world, queries of other tickets included (D4).

    The first call for a turn limit plays them all: seconds for four turns, most of a minute for
    six.
    """
    process = {term.name: term for term in spec.terms if term.process}
    finished: dict[World, float] = {}
    earned = 0.0
    for outcome, where in _reachable(max_turns).items():
        for_process = [term.value(outcome) for term in process.values()]
        earned = max(earned, sum(value for value in for_process if value > 0))
        if outcome.success:
            parts = spec.score(outcome).parts.items()
            rest = sum(value for name, value in parts if name not in process)
            finished |= {world: max(rest, finished.get(world, rest)) for world in where}
    return TenfoldReport(min(finished.values()), earned)


@cache
def _reachable(max_turns: int) -> Mapping[EpisodeOutcome, Set[World]]:
    """What may have happened at any point of any episode, and in which worlds."""
    game = plays(max_turns)
    waiting, known = list(game.starts), set(game.starts)
    found: dict[EpisodeOutcome, set[World]] = {}
    for moment in waiting:  # grows while it is read
        found.setdefault(moment.outcome, set()).add(moment.world)
        if not moment.is_over:
            moves = (game.move(moment, action) for action in (*MEANINGS, *QUERY_OTHERS))
            new = {after for _, after in moves} - known
            known |= new
            waiting += new
    return found

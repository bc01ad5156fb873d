"""Success with its interval, and what else a set of episodes says. Knows no training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import comb
from typing import Any

from scipy.stats import binomtest

from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.streams import stream
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.world.audit import name_of
from agentrl_lab.world.meanings import INVALID, action_of


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of episodes with its 95% Wilson interval."""

    value: float
    low: float
    high: float
    n: int


def rate(hits: int, n: int) -> Rate:
    """hits / n and its 95% interval.

    >>> rate(10, 10).low < 1.0 == rate(10, 10).high
    True

    Raises:
        ValueError: there was no trial, or hits are not between 0 and their number.

    Source: Wilson 1927, through scipy.stats.binomtest.
    """
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"expected 0 to n hits of n >= 1 trials, got {hits} of {n}")
    interval = binomtest(hits, n).proportion_ci(confidence_level=0.95, method="wilson")
    return Rate(hits / n, float(interval.low), float(interval.high), n)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a policy does on tasks. Every episode counts, also broken and endless ones (law 36)."""

    temperature: float
    success: Rate
    fabrication: Rate
    by_kind: dict[str, Rate]
    invalid_rate: float
    """Invalid actions per action."""
    turns: float
    """Turns per episode."""
    reward: float
    """Reward per episode."""
    stops: dict[str, int]
    """Episodes by stop reason."""
    pass_k: dict[str, float]
    """pass^k: the chance that k attempts at the same task all succeed."""
    policy_tokens: int
    strategies: dict[str, float] = field(default_factory=dict)
    """Share of episodes by the named strategy of their actions."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(
    collector: Collector,
    tasks: Sequence[int],
    *,
    temperature: float = 0.0,
    seed: int = 0,
    attempts: int = 1,
    chunk: int = 64,
    watch: Callable[[int], None] = lambda episodes: None,
) -> Evaluation:
    """Plays each task `attempts` times; all figures but pass^k are those of the first attempt.

    Args:
        collector: policy and environment.
        tasks: numbers of tasks in the environment's split.
        temperature: 0 is greedy, and then attempts are all the same.
        seed: root of the sampling noise.
        attempts: at each task, for pass^k with k = 1 ... attempts.
        chunk: episodes that step together.
        watch: told how many episodes are done after each chunk.
    """
    rounds = [
        collector.collect(
            tasks, temperature=temperature, seed=stream(seed, "evaluation", k), chunk=chunk,
            watch=lambda done, k=k: watch(k * len(tasks) + done),
        )
        for k in range(attempts)
    ]  # fmt: skip
    return replace(summarise(rounds, temperature), strategies=strategies(collector, rounds[0]))


def strategies(collector: Collector, episodes: Sequence[Trajectory]) -> dict[str, float]:
    """Share of episodes by the audit's name for what was done in them, most frequent first."""
    env, names = collector.make_env(), Counter()
    for episode in episodes:
        env.reset(options={"index": episode.index})
        actions = [
            action_of(stage.call, env.task) if stage.call else INVALID for stage in episode.stages
        ]
        names[name_of(actions, episode.outcome)] += 1
    return {name: count / len(episodes) for name, count in names.most_common()}


def summarise(rounds: Sequence[Sequence[Trajectory]], temperature: float) -> Evaluation:
    """The figures of some rounds over the same tasks."""
    episodes, n = rounds[0], len(rounds[0])
    turns = sum(t.outcome.turns for t in episodes)
    kinds, stops = defaultdict(list), defaultdict(int)
    for t in episodes:
        kinds[t.outcome.kind.value].append(t.outcome.success)
        stops[t.stop.value] += 1
    wins = [sum(trial.outcome.success for trial in task) for task in zip(*rounds, strict=True)]
    return Evaluation(
        temperature=temperature,
        success=rate(sum(t.outcome.success for t in episodes), n),
        fabrication=rate(sum(t.outcome.fabricated for t in episodes), n),
        by_kind={kind: rate(sum(hits), len(hits)) for kind, hits in sorted(kinds.items())},
        invalid_rate=sum(t.outcome.invalid for t in episodes) / max(1, turns),
        turns=turns / n,
        reward=sum(t.reward for t in episodes) / n,
        stops=dict(sorted(stops.items())),
        pass_k={str(k): pass_hat(wins, len(rounds), k) for k in range(1, len(rounds) + 1)},
        policy_tokens=sum(t.num_action_tokens for t in episodes),
    )


def pass_hat(wins: Sequence[int], attempts: int, k: int) -> float:
    """Mean over tasks of the chance that k of its attempts, drawn without repeats, all succeeded.

        pass^k = mean(C(wins, k) / C(attempts, k))

    >>> pass_hat([2, 1], attempts=2, k=2)
    0.5

    Source: Yao et al. 2024, arXiv:2406.12045, section 3.
    """
    return sum(comb(won, k) for won in wins) / comb(attempts, k) / len(wins)

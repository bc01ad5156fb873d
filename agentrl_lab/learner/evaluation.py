"""Success with its interval, and what else a set of episodes says. Knows no training."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import comb
from typing import Any

from scipy.stats import binomtest

from agentrl_lab.learner.monitors import tokens_by_fate
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.streams import stream
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.records import ConclusionKind, TaskKind
from agentrl_lab.world.audit import name_of
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.meanings import INVALID, QUERY, Action, action_of


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
    evasive_rate: float = 0.0
    """Share of episodes that end in a reply without a conclusion: "please wait" (E2)."""
    followed: Rate | None = None
    """How often the first decision was what the debug field said, where there was one (H6)."""

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
    names, follows = _done_in(collector.make_env(), rounds[0])
    return replace(
        summarise(rounds, temperature),
        strategies={name: count / len(tasks) for name, count in Counter(names).most_common()},
        followed=rate(sum(follows), len(follows)) if follows else None,
    )


def _done_in(env: TicketEnv, episodes: Sequence[Trajectory]) -> tuple[list[str], list[bool]]:
    """The audit's name for what was done in each, and whether a debug field was followed."""
    names, follows = [], []
    for episode in episodes:
        env.reset(options={"index": episode.index})
        actions = [
            action_of(stage.call, env.task) if stage.call else INVALID for stage in episode.stages
        ]
        names.append(name_of(actions, episode.outcome))
        told = env.answers.first_told()
        if told and env.task.kind is not TaskKind.NOT_FOUND:
            follows.append(told == _first_decision(actions))
    return names, follows


def _first_decision(actions: Sequence[Action]) -> str:
    """The first update or reply after the first look at the ticket asked for."""
    looked = itertools.dropwhile(lambda action: action != QUERY, actions)
    return next((str(action) for action in looked if action.verb in ("update", "reply")), "")


def summarise(rounds: Sequence[Sequence[Trajectory]], temperature: float) -> Evaluation:
    """The figures of some rounds over the same tasks."""
    episodes, n = rounds[0], len(rounds[0])
    turns = sum(t.outcome.turns for t in episodes)
    kinds, stops = defaultdict(list), defaultdict(int)
    for t in episodes:
        kinds[t.outcome.kind.value].append(t.outcome.success)
        stops[t.stop.value] += 1
    said = [t.outcome.conclusion.kind for t in episodes if t.outcome.conclusion]
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
        evasive_rate=said.count(ConclusionKind.NONE) / n,
    )


def episode_metrics(trajectories: Sequence[Trajectory], temperature: float) -> dict[str, float]:
    """What the episodes of an update say (E11)."""
    seen = summarise([trajectories], temperature)
    stages = [stage for t in trajectories for stage in t.stages]
    entropy = sum(sum(t.entropies) for t in trajectories)
    return {
        "temperature": temperature,
        "success_rate": seen.success.value,
        "fabrication_rate": seen.fabrication.value,
        "invalid_rate": seen.invalid_rate,
        "turns_per_episode": seen.turns,
        "queries_per_episode": sum(t.outcome.queries for t in trajectories) / len(trajectories),
        "repeats_per_episode": sum(t.outcome.repeats for t in trajectories) / len(trajectories),
        "reward_per_episode": seen.reward,
        "reward_spread": statistics.pstdev(t.reward for t in trajectories),
        "entropy_per_token": entropy / seen.policy_tokens,
        "entropy_per_decision": entropy / len(stages),
        "tokens_per_episode": sum(len(t.ids) for t in trajectories) / len(trajectories),
    } | {
        f"{fate}_tokens": tokens / len(trajectories)
        for fate, tokens in tokens_by_fate(trajectories).items()
    }


def pass_hat(wins: Sequence[int], attempts: int, k: int) -> float:
    """Mean over tasks of the chance that k of its attempts, drawn without repeats, all succeeded.

        pass^k = mean(C(wins, k) / C(attempts, k))

    >>> pass_hat([2, 1], attempts=2, k=2)
    0.5

    Source: Yao et al. 2024, arXiv:2406.12045, section 3.
    """
    return sum(comb(won, k) for won in wins) / comb(attempts, k) / len(wins)

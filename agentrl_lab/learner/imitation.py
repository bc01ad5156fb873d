"""Learning from whole episodes that went well: own successes, or demonstrations (A4, F4, G2).

Rejection sampling: keep the episodes that succeeded, and make them likelier. What is kept counts
alike, token by token; what failed is thrown away, so nothing is learned from it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import ppo
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.sft import demonstrate, planner, sft_step
from agentrl_lab.learner.trajectories import Trajectory, TrajectoryBuffer
from agentrl_lab.records import TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import Task


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Who shows how it is done, and on which tasks."""

    mixture: habits.Mixture
    shows: Callable[[Task], bool] = lambda task: True
    only_successes: bool = False
    """Whether somebody looked at the ends and threw the failures away."""


DEMONSTRATORS: Mapping[str, Demonstrator] = {
    "perfect": Demonstrator(habits.PERFECT),
    "mixed": Demonstrator(habits.MIXED),
    "filtered": Demonstrator(habits.MIXED, only_successes=True),
    "happy_path": Demonstrator(
        habits.PERFECT, lambda task: task.kind in (TaskKind.CLOSE_PAID, TaskKind.STATUS_ONLY)
    ),
}
"""Setting -> demonstrator. The happy path: nothing stands against what the customer asks for."""
ROOM = 8
"""Tasks looked through for each demonstration, of eight or more an update: enough for the happy
path, half of all tasks."""


def demonstrated(
    policy: Policy, env: TicketEnv, name: str, update: int, count: int, *,
    seed: int, max_tokens: int,
) -> list[Trajectory]:  # fmt: skip
    """Demonstrations for one update, of tasks that no other imitated update is shown.

    Args:
        policy: its tokenizer writes them down.
        env: played in; reset for each.
        name: of the demonstrator.
        update: number of the update, from 0.
        count: episodes.
        seed: root of the demonstrator's choices.
        max_tokens: of an episode.

    Raises:
        ValueError: too few tasks are of the kind that the demonstrator shows.
    """
    demonstrator, room = DEMONSTRATORS[name], ROOM * max(ROOM, count)
    tasks = range(update * room, (update + 1) * room)
    shown = list(itertools.islice(_shown(env, demonstrator, tasks), count))
    if len(shown) < count:
        raise ValueError(
            f"{name} shows only {len(shown)} of {len(tasks)} tasks, {count} are needed an update: "
            "choose other demonstrations, or a desk with more such tasks"
        )

    def plan(env: TicketEnv, rng: random.Random) -> Sequence[str]:
        return demonstrator.mixture.plan(env.task, env.codec, rng)

    return [
        demonstrate(policy.tokenizer, env, index, planner(plan, seed, index), max_tokens=max_tokens)
        for index in shown
    ]


def _shown(env: TicketEnv, demonstrator: Demonstrator, tasks: Sequence[int]) -> Iterator[int]:
    for index in tasks:
        env.reset(options={"index": index})
        if demonstrator.shows(env.task):
            yield index


def kept(episodes: Sequence[Trajectory], demonstrations: str) -> list[Trajectory]:
    """The episodes that are imitated: of own and of filtered ones the successes, else all.

    Args:
        episodes: of one update, all of them paid for.
        demonstrations: "own", or the name of a demonstrator.
    """
    picky = demonstrations == "own" or DEMONSTRATORS[demonstrations].only_successes
    return [episode for episode in episodes if episode.outcome.success or not picky]


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    episodes: Sequence[Trajectory],
    config: PPOConfig,
    generator: torch.Generator,
) -> dict[str, float]:
    """Makes episodes likelier, all alike; returns the update's metrics.

        loss = -mean(log pi(a_t | s_t)) over the action tokens of a minibatch

    Args:
        policy: of any origin: whose episodes they are does not matter here.
        optimizer: from ppo.make_optimizer, its step sizes set.
        episodes: what to imitate; without any, nothing is learned.
        config: minibatch, epochs and largest gradient norm.
        generator: shuffles episodes into minibatches.

    Raises:
        NonFiniteUpdate: a gradient is not finite; nothing was changed by that step.
    """
    losses, norms = [], []
    if episodes:
        buffer = TrajectoryBuffer(episodes)
        for _ in range(config.epochs):
            for rows_B in buffer.epoch(config.minibatch_episodes, generator):
                optimizer.zero_grad(set_to_none=True)
                losses.append(sft_step(policy, buffer.batch.rows(rows_B)))
                norms.append(ppo.optimizer_step(policy, optimizer, config.max_grad_norm))
    steps = max(1, len(losses))
    return {
        "imitated_episodes": float(len(episodes)),
        "imitation_loss": sum(losses) / steps,
        "grad_norm": sum(norms) / steps,
        "optimizer_steps": float(len(norms)),
    }

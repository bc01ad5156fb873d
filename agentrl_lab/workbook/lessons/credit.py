"""GAE held against the truth: a language model's plan, as a table, solved exactly by the oracle.

The table says how often the model does what in each information state. Its exact advantages are
what GAE estimates from episodes. Knows no pictures.

Axes: B episode, T turn here (one "token" per turn), N estimate.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.advantages import gae
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.information import steps_of, table_of
from agentrl_lab.world.meanings import named
from agentrl_lab.world.plays import plays
from agentrl_lab.world.rewards import RewardSpec

Step = tuple[str, str]
"""(information state, action)."""
MAX_TURNS = EnvConfig().max_turns


@dataclass(frozen=True)
class Told:
    """An episode of tokens, and what it means turn by turn."""

    trajectory: Trajectory
    steps: Sequence[Step]


def collect_told(
    policy: Policy, tasks: Sequence[int], *, temperature: float, seed: int
) -> list[Told]:
    """Episodes of the training split with their meaning."""
    made: list[TicketEnv] = []

    def make() -> TicketEnv:
        made.append(TicketEnv("train", 0, EnvConfig(), count_tokens=policy.tokenizer.count))
        return made[-1]

    found = Collector(policy, make, SamplingConfig()).collect(
        tasks, temperature=temperature, seed=[seed]
    )
    return [
        Told(trajectory, steps_of(env.task, env.messages, env.codec))
        for trajectory, env in zip(found, made, strict=True)
    ]


class SemanticPolicy(Mapping[str, Mapping[str, float]]):
    """What a policy did in each information state; where it was never seen, it gives up.

    Args:
        told: episodes of it.
    """

    def __init__(self, told: Sequence[Told]) -> None:
        self.table = table_of(step for episode in told for step in episode.steps)

    def __getitem__(self, state: str) -> Mapping[str, float]:
        return self.table.get(state, {"reply none": 1.0})

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


@dataclass(frozen=True)
class Played:
    """Episodes turn by turn."""

    steps: Sequence[Sequence[Step]]
    reward_BT: Tensor
    mask_BT: Tensor


def play(table: SemanticPolicy, spec: RewardSpec, episodes: int, seed: int) -> Played:
    """Episodes of a table on the desk itself, without text: 10,000 take about a second."""
    rng, starts = random.Random(seed), plays(MAX_TURNS).starts
    shares = [moment.world.share for moment in starts]
    all_steps, reward_BT = [], torch.zeros(episodes, MAX_TURNS)
    for row, moment in enumerate(rng.choices(starts, shares, k=episodes)):
        state, steps, paid = moment.world.task.intent, [], 0.0
        while not moment.is_over:
            choice = table[state]
            action = rng.choices(list(choice), list(choice.values()))[0]
            steps.append((state, action))
            saw, moment = plays(MAX_TURNS).move(moment, named(action))
            score = spec.score(moment.outcome).total
            reward_BT[row, len(steps) - 1], paid = score - paid, score
            state += f" > {action}: {saw}"
        all_steps.append(steps)
    lengths = torch.tensor([len(steps) for steps in all_steps])
    return Played(all_steps, reward_BT, torch.arange(MAX_TURNS) < lengths[:, None])


def estimates(
    played: Played, values: Mapping[str, float], *, gamma: float, gae_lambda: float
) -> dict[Step, Tensor]:
    """All advantages that GAE finds for each (state, action), in the order of the episodes.

    Args:
        played: episodes.
        values: what the critic says of a state; 0 where it says nothing.
        gamma: discount per turn.
        gae_lambda: as in `gae`.
    """
    value_BT = torch.zeros_like(played.reward_BT)
    for row, steps in enumerate(played.steps):
        for turn, (state, _) in enumerate(steps):
            value_BT[row, turn] = values.get(state, 0.0)
    found_BT = gae(played.reward_BT, value_BT, played.mask_BT, torch.zeros(len(value_BT)),
                   gamma=gamma, gae_lambda=gae_lambda).tolist()  # fmt: skip
    groups: dict[Step, list[float]] = defaultdict(list)
    for steps, row in zip(played.steps, found_BT, strict=True):
        for step, advantage in zip(steps, row, strict=False):
            groups[step].append(advantage)
    return {step: torch.tensor(numbers) for step, numbers in groups.items()}


def centred(found: Mapping[Step, Tensor], table: SemanticPolicy) -> dict[Step, Tensor]:
    """The same minus the policy's mean in the state: what all actions share pushes none of them."""
    mean: dict[str, float] = defaultdict(float)
    weight: dict[str, float] = defaultdict(float)
    for (state, action), numbers in found.items():
        mean[state] += table[state][action] * float(numbers.mean())
        weight[state] += table[state][action]
    return {step: numbers - mean[step[0]] / weight[step[0]] for step, numbers in found.items()}

"""Five small worlds, each of which only works when one part of the learner does.

Every world is played by a random Llama of two thousand weights through the real collector, and
learned by the real update: one token an action, 32 episodes an update, at most 24 updates. Each
must be solved at three seeds, and broken learners must fail the world that is made for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from agentrl_lab.config import PPOConfig, SamplingConfig
from agentrl_lab.learner import ppo
from agentrl_lab.learner.advantages import gae, whiten
from agentrl_lab.learner.losses import value_loss
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.trajectories import TrajectoryBuffer
from tests import tiny
from tests.tiny import NumberTokenizer, ToyWorld

pytestmark = pytest.mark.probe

VOCABULARY = 12
EPISODES, UPDATES = 32, 24
GAMMA = 0.5
LEFT, RIGHT = 10, 11
"""The two observations; the same two ids are the actions that may be asked for."""
CONFIG = PPOConfig(
    episodes_per_update=EPISODES, minibatch_episodes=16, microbatch_episodes=16, epochs=4,
    gamma=GAMMA, gae_lambda=0.95, clip_ratio=0.2, learning_rate=1e-2, value_learning_rate=5e-2,
    entropy_coefficient=0.003, value_coefficient=0.5, kl_stop=0.5,
)  # fmt: skip


@dataclass(frozen=True)
class Probe:
    """A world, and what must be true of the policy that has learned it."""

    request: Callable[[int], Sequence[int]]
    pay: Callable[[int, int, str], float]
    turns: int = 1
    values: dict[tuple[int, ...], float] = field(default_factory=dict)
    """Ids so far -> value, to within 0.1."""
    actions: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Ids so far -> action that must have a probability above 0.9."""


def side(task: int) -> int:
    return (LEFT, RIGHT)[task % 2]


MARK, END, ANSWER = NumberTokenizer.turn_mark, NumberTokenizer.end_id, 4
SECOND_TURN = (3, MARK, 5, END, ANSWER, MARK)

PROBES = {
    # the value head, its loss and its step size
    "constant_reward": Probe(
        request=lambda task: [3], pay=lambda task, turn, text: 1.0, values={(3, MARK): 1.0}
    ),
    # that the value depends on what the policy has read
    "reward_by_observation": Probe(
        request=lambda task: [side(task)],
        pay=lambda task, turn, text: 1.0 if side(task) == LEFT else -1.0,
        values={(LEFT, MARK): 1.0, (RIGHT, MARK): -1.0},
    ),
    # discount and credit across a tool result
    "delayed_reward": Probe(
        request=lambda task: [3],
        pay=lambda task, turn, text: float(turn == 1),
        turns=2,
        values={(3, MARK): GAMMA, SECOND_TURN: 1.0},
    ),
    # advantages and the policy loss
    "choice_of_action": Probe(
        request=lambda task: [3],
        pay=lambda task, turn, text: float(text == str(LEFT)),
        values={(3, MARK): 1.0},
        actions={(3, MARK): LEFT},
    ),
    # all of it
    "action_by_observation": Probe(
        request=lambda task: [side(task)],
        pay=lambda task, turn, text: float(text == str(side(task))),
        values={(LEFT, MARK): 1.0, (RIGHT, MARK): 1.0},
        actions={(LEFT, MARK): LEFT, (RIGHT, MARK): RIGHT},
    ),
}


def missing(probe: Probe, policy: Policy) -> list[str]:
    """What the policy has not learned yet."""
    found = []
    with torch.no_grad():
        for ids in probe.values.keys() | probe.actions.keys():
            position = torch.arange(len(ids))[None]
            hidden = policy.hidden(torch.tensor([ids]), position_BT=position, cache=None)[:, -1]
            value, chances = policy.value(hidden).item(), policy.logits(hidden).softmax(-1)[0]
            if ids in probe.values and abs(value - probe.values[ids]) > 0.1:
                found.append(f"value after {ids} is {value:.2f}, not {probe.values[ids]}")
            if ids in probe.actions and chances[probe.actions[ids]] < 0.9:
                chance = chances[probe.actions[ids]].item()
                found.append(f"action {probe.actions[ids]} after {ids} has chance {chance:.2f}")
    return found


def learn(probe: Probe, seed: int, config: PPOConfig = CONFIG) -> list[str]:
    """Trains until nothing is missing or the updates are used up; returns what is still missing."""
    model = tiny.llama(VOCABULARY, hidden=16, layers=1, spread=0.1, seed=seed)
    policy = Policy(model, NumberTokenizer())
    optimizer = ppo.make_optimizer(policy, config)
    make = lambda: ToyWorld(  # noqa: E731
        request=probe.request, pay=probe.pay, turns=probe.turns, answer=lambda *_: [ANSWER]
    )
    collector = Collector(policy, make, SamplingConfig(action_tokens=1, context_tokens=64))
    for number in range(UPDATES):
        episodes = collector.collect(range(EPISODES), temperature=1.0, seed=[seed, number])
        ppo.update(
            policy, optimizer, TrajectoryBuffer(episodes), config, temperature=1.0,
            generator=torch.Generator().manual_seed(seed + number),
        )  # fmt: skip
        if not missing(probe, policy):
            break
    return missing(probe, policy)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROBES)
def test_probe_is_learned(name, seed):
    assert learn(PROBES[name], seed) == []


# Broken learners, each with the world that must notice


def zero_advantages(advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.zeros_like(advantage_BT)


def flipped_advantages(advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return -whiten(advantage_BT, mask_BT)


def shuffled_advantages(advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Every episode is taught by the advantage of its neighbour."""
    return whiten(advantage_BT, mask_BT).roll(1, 0)


def value_error_upside_down(*args, **named) -> Tensor:
    return -value_loss(*args, **named)


def no_value_error(*args, **named) -> Tensor:
    return 0.0 * value_loss(*args, **named)


def gae_of_one_turn(reward_BT, value_BT, mask_BT, bootstrap_B, **named) -> Tensor:
    """Every turn for itself: nothing comes back across a tool result."""
    return torch.where(mask_BT, reward_BT - value_BT, 0.0)


def gae_without_discount(*args, **named) -> Tensor:
    return gae(*args, **{**named, "gamma": 1.0})


def gae_of_whole_batch(reward_BT, value_BT, mask_BT, bootstrap_B, **named) -> Tensor:
    """All episodes share the mean reward of the batch: what was observed no longer matters."""
    mean_BT = torch.where(mask_BT, reward_BT[mask_BT].mean(), 0.0)
    return gae(mean_BT, value_BT, mask_BT, bootstrap_B, **named)


BROKEN = {
    "no_value_error": ("losses.value_loss", no_value_error, "constant_reward"),
    "value_error_upside_down": ("losses.value_loss", value_error_upside_down, "constant_reward"),
    "rewards_of_the_batch": ("gae", gae_of_whole_batch, "reward_by_observation"),
    "credit_for_one_turn": ("gae", gae_of_one_turn, "delayed_reward"),
    "no_discount": ("gae", gae_without_discount, "delayed_reward"),
    "zero_advantages": ("whiten", zero_advantages, "choice_of_action"),
    "flipped_advantages": ("whiten", flipped_advantages, "choice_of_action"),
    "advantages_of_others": ("whiten", shuffled_advantages, "action_by_observation"),
}


@pytest.mark.parametrize(("name", "wrong", "probe"), BROKEN.values(), ids=BROKEN.keys())
def test_probe_fails_for_a_broken_learner(name, wrong, probe, monkeypatch):
    monkeypatch.setattr(f"agentrl_lab.learner.ppo.{name}", wrong)
    try:
        left = learn(PROBES[probe], seed=0)
    except ppo.NonFiniteUpdate:
        return
    assert left


def test_probe_fails_when_the_policy_sees_nothing(monkeypatch):
    """A model that always reads the same prompt cannot tell left from right."""
    monkeypatch.setattr(NumberTokenizer, "opening", lambda self, messages, tools: [3, MARK])
    assert learn(PROBES["reward_by_observation"], seed=0)

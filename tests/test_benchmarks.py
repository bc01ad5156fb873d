"""The fast paths do the same work as the plain ones they are timed against (no times here)."""

import pytest
import torch

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import ppo
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.trajectories import pack
from tests import tiny
from tests.benchmarks.baselines import generate_rollout, plain_minibatch_gradient


@pytest.mark.parametrize("backbone", ["shared"])
def test_update_gradient_equals_the_plain_padded_one_in_float64(tokenizer, sharp_norm, backbone):
    policy = Policy(tiny.llama(50).double(), tokenizer)
    torch.nn.init.normal_(policy.value_head.weight, std=0.5)
    batch = pack(tiny.random_trajectories(50, 8), torch.float64)
    config = PPOConfig(episodes_per_update=8, minibatch_episodes=8, microbatch_episodes=3)
    targets, rows_B = ppo.make_targets(batch, config), torch.arange(8)
    optimizer = ppo.make_optimizer(policy, config)

    def gradients():
        return torch.cat([p.grad.flatten() for p in policy.parameters()])

    plain_minibatch_gradient(policy, batch, targets, rows_B, config, temperature=0.7)
    plain = gradients()
    ppo.minibatch_gradient(policy, optimizer, batch, targets, rows_B, config, temperature=0.7)
    assert float((gradients() - plain).norm() / plain.norm()) < 1e-8


def test_generate_baseline_plays_whole_episodes(tokenizer):
    from agentrl_lab.world.env import TicketEnv

    policy = Policy(tiny.llama(len(tokenizer.tokenizer), hidden=16, heads=2), tokenizer)
    envs = [TicketEnv(count_tokens=tokenizer.count) for _ in range(3)]
    torch.manual_seed(0)
    written = generate_rollout(policy, envs, range(3), temperature=1.0, max_new=6)
    assert all(env.stop_reason is not None for env in envs)
    assert 3 <= written <= 3 * 6 * 6

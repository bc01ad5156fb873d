"""Supervised fine-tuning on demonstrations: the warm start before RL (A4, G2).

Demonstrations are played through the real environment, so they have the same ids, the same action
mask and the same boundary between prompt and action as a rollout.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import torch

from agentrl_lab.learner.forward import micro_batches, score_actions
from agentrl_lab.learner.losses import chosen_logprob
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.learner.trajectories import Batch, Stage, Trajectory, pack
from agentrl_lab.world.env import TicketEnv

MICRO_BATCH = 8
Plan = Callable[[TicketEnv], Sequence[str]]


def demonstrate(
    tokenizer: ChatTokenizer, env: TicketEnv, index: int, plan: Plan, *, max_tokens: int
) -> Trajectory:
    """Plays planned messages through the environment and records them as a trajectory.

    Args:
        tokenizer: encodes what a policy would have sampled.
        env: reset here to task `index`.
        plan: messages for the task; those left when the episode stops are not used.
        max_tokens: the demonstration stops before a turn that would not fit.
    """
    _, info = env.reset(options={"index": index})
    ids, stages = tokenizer.opening(env.messages, env.tools), []
    for text in plan(env):
        action, winnable = tokenizer.encode_action(text), info.get("winnable", True)
        start = len(ids)
        _, reward, terminated, _, info = env.play(text)
        ids += action
        done = info["invalid"], info.get("call")
        stages.append(Stage(start, len(ids), reward, text, *done, was_winnable=winnable))
        suffix = tokenizer.after_action(env.messages[-1], ended=True)
        if terminated:
            break
        if len(ids) + len(suffix) + 2 * len(action) > max_tokens:
            env.truncate()
            break
        ids += suffix
    nothing = (0.0,) * sum(stage.stop - stage.start for stage in stages)
    return Trajectory(index, tuple(ids), tuple(stages), nothing, nothing, nothing, env.outcome, {})


def sft_step(policy: Policy, batch: Batch) -> float:
    """Mean negative log-likelihood (nats per action token) of the actions; adds its gradient."""
    count, total = int(batch.action_mask_BT.sum()), 0.0
    for part in micro_batches(batch, torch.arange(len(batch.length_B)), MICRO_BATCH):
        scored = score_actions(policy, part)
        loss = -chosen_logprob(scored.logits_MV, scored.token_M).sum() / count
        loss.backward()
        total += loss.item()
    return total


def train_sft(
    policy: Policy,
    demonstrations: Iterator[list[Trajectory]],
    *,
    steps: int,
    learning_rate: float,
    warmup: int = 20,
    max_grad_norm: float = 1.0,
) -> Iterator[float]:
    """Trains on one batch of demonstrations a step; yields the loss before each step.

    The step size rises over `warmup` steps and then falls to a tenth along a cosine.
    """
    weights = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * _schedule(step, steps, warmup)
        optimizer.zero_grad(set_to_none=True)
        loss = sft_step(policy, pack(next(demonstrations)))
        torch.nn.utils.clip_grad_norm_(weights, max_grad_norm, error_if_nonfinite=True)
        optimizer.step()
        yield loss


def _schedule(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return 0.1 + 0.45 * (1.0 + float(torch.cos(torch.tensor(torch.pi * share))))


def demonstration_batches(
    tokenizer: ChatTokenizer,
    env: TicketEnv,
    plan: Callable[[TicketEnv, random.Random], Sequence[str]],
    *,
    seed: int,
    batch: int,
    max_tokens: int,
) -> Iterator[list[Trajectory]]:
    """Endless batches of demonstrations; number i depends only on (seed, i)."""
    for first in itertools.count(step=batch):
        yield [
            demonstrate(tokenizer, env, number, planner(plan, seed, number), max_tokens=max_tokens)
            for number in range(first, first + batch)
        ]


def planner(
    plan: Callable[[TicketEnv, random.Random], Sequence[str]], seed: int, number: int
) -> Plan:
    """The plan with its own random choices: those of demonstration `number`."""
    return lambda env: plan(env, random.Random(f"demonstration/{seed}/{number}"))

"""One PPO update: advantages once, then minibatches over a few epochs (E3-E5, E9, E10).

Simplifications we made: no learning-rate schedule, no reward normalisation, one optimizer for
policy and value head (two step sizes), advantages are not recomputed between epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import losses
from agentrl_lab.learner.advantages import explained_variance, gae, whiten
from agentrl_lab.learner.forward import Scored, micro_batches, score_actions
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.trajectories import Batch, TrajectoryBuffer


class NonFiniteUpdate(RuntimeError):
    """A loss or gradient is NaN or infinite; the step was not applied."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What an update pulls towards; computed once, before its first epoch."""

    advantage_BT: Tensor
    """Whitened over all action tokens of the update."""
    return_BT: Tensor
    """Advantage (not whitened) plus old value: what the value head should say."""


def make_optimizer(policy: Policy, config: PPOConfig) -> torch.optim.Adam:
    """Adam with one step size for the transformer and one for the value head."""
    return torch.optim.Adam(
        [
            {"params": list(policy.model.parameters()), "lr": config.learning_rate},
            {"params": list(policy.value_head.parameters()), "lr": config.value_learning_rate},
        ]
    )


def make_targets(batch: Batch, config: PPOConfig) -> Targets:
    """Advantages and returns of the collected episodes."""
    advantage_BT = gae(
        batch.reward_BT, batch.value_old_BT, batch.action_mask_BT, batch.bootstrap_B,
        gamma=config.gamma, gae_lambda=config.gae_lambda,
        turn_BT=batch.turn_BT if config.discount_per == "turn" else None,
    )  # fmt: skip
    return Targets(whiten(advantage_BT, batch.action_mask_BT), advantage_BT + batch.value_old_BT)


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    buffer: TrajectoryBuffer,
    config: PPOConfig,
    *,
    temperature: float,
    generator: torch.Generator,
) -> dict[str, float]:
    """Improves the policy on the buffer's episodes; returns the update's metrics.

    Args:
        policy: the one that collected the episodes.
        optimizer: from make_optimizer.
        buffer: refuses more epochs than its trajectories may serve.
        config: PPO settings.
        temperature: of the rollout; the probabilities compared are those sampled from.
        generator: shuffles episodes into minibatches.

    Raises:
        NonFiniteUpdate: a gradient is not finite; parameters and optimizer are as before the step.
    """
    targets, rows = make_targets(buffer.batch, config), []
    for _ in range(config.epochs):
        for rows_B in buffer.epoch(config.minibatch_episodes, generator):
            step = minibatch_gradient(
                policy, optimizer, buffer.batch, targets, rows_B, config, temperature=temperature
            )
            rows.append(step)
            if step["kl_old"] > config.kl_stop:  # before stepping, not after (law 20)
                return _summary(rows, buffer.batch, targets, stopped=True)
            rows[-1]["grad_norm"] = optimizer_step(policy, optimizer, config.max_grad_norm)
    return _summary(rows, buffer.batch, targets, stopped=False)


def minibatch_gradient(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    targets: Targets,
    rows_B: Tensor,
    config: PPOConfig,
    *,
    temperature: float,
) -> dict[str, float]:
    """Puts the gradient of one minibatch into the parameters; returns the parts of its loss.

        loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy

    Every mean runs over the action tokens of the whole minibatch, whatever the micro-batches.
    """
    optimizer.zero_grad(set_to_none=True)
    count = int(batch.action_mask_BT[rows_B].sum())
    sums: dict[str, float] = {}
    for part, (advantage_BT, return_BT) in _parts(batch, targets, rows_B, config):
        detach = config.value_backbone == "detached"
        scored = score_actions(policy, part, detach_value=detach)
        pieces = _pieces(scored, part, advantage_BT, return_BT, config, temperature, count)
        loss = (
            pieces["policy_loss"]
            + config.value_coefficient * pieces["value_loss"]
            - config.entropy_coefficient * pieces["entropy"]
        )
        loss.backward()
        for name, value in pieces.items():
            total = max if name == "ratio_error" else float.__add__
            sums[name] = total(sums.get(name, 0.0), float(value.detach()))
    return sums


def _parts(batch: Batch, targets: Targets, rows_B: Tensor, config: PPOConfig):
    """Micro-batches with their targets, cut to the same rows and length."""
    by_length_B = rows_B[batch.length_B[rows_B].argsort(stable=True)]
    parts = micro_batches(batch, rows_B, config.microbatch_episodes)
    chosen = by_length_B.split(config.microbatch_episodes)
    for part, part_B in zip(parts, chosen, strict=True):
        length = part.token_BT.shape[1]
        yield part, (targets.advantage_BT[part_B, :length], targets.return_BT[part_B, :length])


def _pieces(
    scored: Scored, part: Batch, advantage_BT: Tensor, return_BT: Tensor,
    config: PPOConfig, temperature: float, count: int,
) -> dict[str, Tensor]:  # fmt: skip
    """The named parts of the loss over the action tokens of one micro-batch."""
    mask_BT = part.action_mask_BT
    logits_MV = scored.logits_MV / temperature
    logprob_M = losses.chosen_logprob(logits_MV, scored.token_M)
    old_M, advantage_M = part.logprob_old_BT[mask_BT], advantage_BT[mask_BT]
    all_M = torch.ones_like(logprob_M, dtype=torch.bool)
    clip = config.clip_ratio
    entropy = losses.masked_mean(losses.token_entropy(logits_MV), all_M, count)
    share = len(all_M) / count
    return {
        "policy_loss": losses.policy_loss(
            logprob_M, old_M, advantage_M, all_M, clip_ratio=clip, count=count),
        "value_loss": losses.value_loss(
            scored.value_M, part.value_old_BT[mask_BT], return_BT[mask_BT], all_M,
            value_clip=config.value_clip, count=count),
        "entropy": entropy,
        "kl_old": losses.kl_k3(logprob_M, old_M, all_M, count),
        "clip_fraction": share * losses.clip_fraction(
            logprob_M, old_M, advantage_M, all_M, clip_ratio=clip),
        "ratio_error": ((logprob_M - old_M).exp() - 1.0).abs().max(),
    }  # fmt: skip


def optimizer_step(policy: Policy, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> float:
    """One optimizer step on finite gradients; returns their norm before clipping."""
    parameters = [p for p in policy.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    if not torch.isfinite(norm):
        optimizer.zero_grad(set_to_none=True)
        raise NonFiniteUpdate(
            f"the gradient norm is {float(norm)}: the step was not applied. Look for rewards, "
            "values or log-probabilities that are not finite, or lower the learning rate"
        )
    torch.nn.utils.clip_grads_with_norm_(parameters, max_grad_norm, norm)
    optimizer.step()
    return float(norm)


def _summary(
    rows: list[dict[str, float]], batch: Batch, targets: Targets, *, stopped: bool
) -> dict[str, float]:
    """Metrics of an update: means over its minibatches, and what needs its first or largest."""
    names = ("policy_loss", "value_loss", "entropy", "clip_fraction")
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in names}
    norms = [row["grad_norm"] for row in rows if "grad_norm" in row]
    return {
        **mean,
        "kl_old": rows[-1]["kl_old"],
        "kl_old_max": max(row["kl_old"] for row in rows),
        "grad_norm": sum(norms) / max(1, len(norms)),
        "first_ratio_error": rows[0]["ratio_error"],
        "optimizer_steps": float(len(norms)),
        "kl_stopped": float(stopped),
        "explained_variance": explained_variance(
            batch.value_old_BT, targets.return_BT, batch.action_mask_BT),
    }  # fmt: skip

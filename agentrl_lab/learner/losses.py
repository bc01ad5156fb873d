"""The parts of the PPO loss: pure functions, a line of mathematics each.

Axes: M action tokens of a batch in one row (or any other shape shared by all arguments). Means run
over action tokens only; `count` is the number to divide by, so that micro-batches of one minibatch
add up to the mean over the minibatch (a mean of means would not).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_mean(x: Tensor, mask: Tensor, count: int | None = None) -> Tensor:
    """Sum of x where mask holds, divided by `count` (by default the number of such places)."""
    total = torch.where(mask.bool(), x, 0.0).sum()
    return total / max(1, int(mask.sum()) if count is None else count)


def log_ratio(logprob: Tensor, logprob_old: Tensor, mask: Tensor) -> Tensor:
    """logprob - logprob_old, 0 where mask does not hold (chosen before exp: no inf * 0)."""
    return torch.where(mask.bool(), logprob - logprob_old, 0.0)


def policy_loss(
    logprob: Tensor,
    logprob_old: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip_ratio: float,
    count: int | None = None,
) -> Tensor:
    """The clipped surrogate, as a loss.

        ratio = exp(logprob - logprob_old)
        loss  = -mean(min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A))

    Args:
        logprob: nats, under the policy being trained, at the temperature of the rollout.
        logprob_old: nats, under the collecting policy.
        advantage: usually whitened; no gradient flows through it.
        mask: true on action tokens.
        clip_ratio: epsilon.
        count: what to divide by; the number of action tokens by default.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    ratio = log_ratio(logprob, logprob_old, mask).exp()
    clipped = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    return -masked_mean(torch.minimum(ratio * advantage, clipped * advantage), mask, count)


def value_loss(
    value: Tensor,
    value_old: Tensor,
    target: Tensor,
    mask: Tensor,
    *,
    value_clip: float = 0.0,
    count: int | None = None,
) -> Tensor:
    """Mean squared value error over action tokens (not halved).

    With value_clip the larger of the plain and the clipped error counts:

        V_clip = V_old + clip(V - V_old, -value_clip, value_clip)

    Args:
        value: prediction, reward units.
        value_old: prediction stored at rollout time.
        target: return, reward units.
        mask: true on action tokens.
        value_clip: largest step of a value; 0 switches clipping off.
        count: what to divide by; the number of action tokens by default.
    """
    value, value_old, target = (
        torch.where(mask.bool(), x, 0.0) for x in (value, value_old, target)
    )  # chosen before the square, so that what stands elsewhere has no gradient, not even NaN
    error = (value - target).square()
    if value_clip > 0:
        near = value_old + (value - value_old).clamp(-value_clip, value_clip)
        error = torch.maximum(error, (near - target).square())
    return masked_mean(error, mask, count)


def token_entropy(logits: Tensor) -> Tensor:
    """Entropy -sum p log p over the vocabulary, in nats, of each row of tempered logits."""
    logprobs = logits.log_softmax(dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def chosen_logprob(logits: Tensor, token: Tensor) -> Tensor:
    """Log-probability (nats) of one token for each row of tempered logits."""
    return -F.cross_entropy(logits, token, reduction="none")


def kl_k3(logprob: Tensor, logprob_old: Tensor, mask: Tensor, count: int | None = None) -> Tensor:
    """KL(old || new) estimated from old samples, nats per action token; never negative.

        k3 = exp(d) - 1 - d,   d = logprob - logprob_old

    Source: Schulman 2020, "Approximating KL Divergence".
    """
    d = log_ratio(logprob, logprob_old, mask)
    return masked_mean(d.expm1() - d, mask, count)


def clip_fraction(
    logprob: Tensor, logprob_old: Tensor, advantage: Tensor, mask: Tensor, *, clip_ratio: float
) -> Tensor:
    """Share of action tokens whose gradient is 0 because the clip holds (effectively clipped).

    Outside the interval alone is not enough: a ratio that is being pulled back is not clipped.
    """
    ratio = log_ratio(logprob, logprob_old, mask).exp()
    above = (ratio > 1.0 + clip_ratio) & (advantage > 0)
    below = (ratio < 1.0 - clip_ratio) & (advantage < 0)
    return masked_mean((above | below).to(ratio.dtype), mask)

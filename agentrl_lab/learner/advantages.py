"""Returns and advantages: pure functions of rewards, values and masks.

Axes: B episode in the batch, T token position (padded). Tool tokens are skipped, not discounted.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gae(
    reward_BT: Tensor,
    value_BT: Tensor,
    action_mask_BT: Tensor,
    bootstrap_B: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    turn_BT: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimate on action tokens; 0 elsewhere.

        delta_t = r_t + gamma * V_next - V_t
        A_t     = delta_t + gamma * lambda * A_next

    "next" is the next *action* token: tool output between two actions is skipped, not discounted.
    With turn_BT, gamma and lambda count per turn: inside a turn both are 1.

    Args:
        reward_BT: float, reward units. Read at action tokens only.
        value_BT: float, same units, predicted before the token is written.
        action_mask_BT: true where the policy wrote the token.
        bootstrap_B: value after the last action: 0 if terminated, V(last observation) if truncated.
        gamma: discount, in [0, 1].
        gae_lambda: 0 is one-step TD, 1 is Monte Carlo.
        turn_BT: number of the turn of each action token; None discounts per token.

    Returns:
        advantage_BT: float, reward units, not whitened.

    Raises:
        ValueError: the *_BT tensors differ in shape, or a reward, a value in use or a bootstrap is
            not finite.

    Source: Schulman et al. 2016, arXiv:1506.02438, section 3.
    """
    mask_BT = action_mask_BT.bool()
    _check(mask_BT, bootstrap_B, reward=reward_BT, value=value_BT)
    advantage_BT, one = torch.zeros_like(value_BT), value_BT.new_ones(())
    next_value_B, next_advantage_B = bootstrap_B.to(value_BT.dtype), torch.zeros_like(bootstrap_B)
    next_turn_B = torch.full_like(bootstrap_B, -1)
    for t in reversed(range(mask_BT.shape[1])):
        is_action_B = mask_BT[:, t]
        turn_B = next_turn_B - 1 if turn_BT is None else turn_BT[:, t].to(next_turn_B.dtype)
        crosses_B = turn_B != next_turn_B
        gamma_B = torch.where(crosses_B, gamma * one, one)
        decay_B = torch.where(crosses_B, gamma * gae_lambda * one, one)
        delta_B = reward_BT[:, t] + gamma_B * next_value_B - value_BT[:, t]
        new_B = delta_B + decay_B * next_advantage_B
        advantage_BT[:, t] = torch.where(is_action_B, new_B, 0.0)
        next_advantage_B = torch.where(is_action_B, new_B, next_advantage_B)
        next_value_B = torch.where(is_action_B, value_BT[:, t], next_value_B)
        next_turn_B = torch.where(is_action_B, turn_B, next_turn_B)
    return advantage_BT


def rewards_to_go(
    reward_BT: Tensor, action_mask_BT: Tensor, *, gamma: float, turn_BT: Tensor | None = None
) -> Tensor:
    """Discounted sum of rewards from each action token on; 0 elsewhere: GAE with V = 0, lambda = 1.

    Args:
        reward_BT: float, reward units.
        action_mask_BT: true where the policy wrote the token.
        gamma: discount per turn when turn_BT is given, else per action token.
        turn_BT: number of the turn of each action token.
    """
    nothing = torch.zeros_like(reward_BT)
    return gae(reward_BT, nothing, action_mask_BT, nothing[:, 0],
               gamma=gamma, gae_lambda=1.0, turn_BT=turn_BT)  # fmt: skip


def whiten(advantage_BT: Tensor, action_mask_BT: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over action tokens; 0 elsewhere (law 24).

    A single action token is left as it is; equal ones become 0.
    """
    mask_BT = action_mask_BT.bool()
    chosen = advantage_BT[mask_BT].double()  # the float32 mean of equal numbers is not that number
    if chosen.numel() < 2:
        return torch.where(mask_BT, advantage_BT, 0.0)
    scaled_BT = (advantage_BT - chosen.mean()) / (chosen.std() + epsilon)
    return torch.where(mask_BT, scaled_BT, 0.0)


def explained_variance(value_BT: Tensor, return_BT: Tensor, action_mask_BT: Tensor) -> float:
    """1 - Var(return - value) / Var(return) over action tokens; 0 when returns do not vary."""
    mask_BT = action_mask_BT.bool()
    returns, values = return_BT[mask_BT].double(), value_BT[mask_BT].double()
    if returns.numel() < 2 or float(returns.var()) == 0.0:
        return 0.0
    return float(1.0 - (returns - values).var() / returns.var())


def _check(mask_BT: Tensor, bootstrap_B: Tensor, **named: Tensor) -> None:
    if not torch.isfinite(bootstrap_B).all():
        raise ValueError(
            f"bootstrap_B is {bootstrap_B.tolist()}: the value after the last action must be finite"
        )
    for name, tensor in named.items():
        if tensor.shape != mask_BT.shape:
            raise ValueError(
                f"{name}_BT has shape {tuple(tensor.shape)}, expected {tuple(mask_BT.shape)} like "
                "action_mask_BT. All *_BT tensors share one padded length T; was one sliced?"
            )
        if not torch.isfinite(tensor[mask_BT]).all():
            raise ValueError(
                f"{name}_BT has a value that is not finite on an action token: drop that "
                "trajectory, and look for its cause, before any optimizer step"
            )

"""Scores recorded action tokens under the policy as it is now: logits and values, with gradients.

Three things make it fast, none of which changes the result: the beginning that all episodes share
(system prompt and tools) runs once and its keys and values are expanded over the batch; logits are
made at action tokens only; the caller sorts episodes by length into micro-batches.

Axes: B episode, T token position, P shared prefix, S the rest, M action tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.tokenization import common_prefix
from agentrl_lab.learner.trajectories import Batch


@dataclass(frozen=True, slots=True)
class Scored:
    """What the policy says now about the action tokens of a batch, in the batch's row order."""

    logits_MV: Tensor
    """Raw logits (temperature 1) that predict each action token."""
    value_M: Tensor
    """Value before each action token was written."""
    token_M: Tensor


def score_actions(policy: Policy, batch: Batch, *, detach_value: bool = False) -> Scored:
    """Logits and values of all action tokens of a batch.

    Args:
        policy: gradients flow into it; dropout is off, whatever its mode.
        batch: at least one episode.
        detach_value: True keeps value errors out of the transformer.
    """
    mask_BT = batch.action_mask_BT
    with policy.without_dropout():
        hidden_BSH, prefix = _hidden(policy, batch)
    # State t predicts token t + 1: an action token at t is scored by the state at t - 1.
    before_BS = mask_BT[:, prefix + 1 :]
    hidden_MH = hidden_BSH[:, :-1][before_BS]
    value_input = hidden_MH.detach() if detach_value else hidden_MH
    return Scored(policy.logits(hidden_MH), policy.value(value_input), batch.token_BT[mask_BT])


def micro_batches(batch: Batch, rows_B: Tensor, size: int) -> list[Batch]:
    """Some episodes of a batch, sorted by length and split: less padding, the same gradient.

    Args:
        batch: all episodes.
        rows_B: numbers of the wanted episodes.
        size: episodes in one part.
    """
    by_length_B = rows_B[batch.length_B[rows_B].argsort(stable=True)]
    return [batch.rows(part) for part in by_length_B.split(size)]


def _hidden(policy: Policy, batch: Batch) -> tuple[Tensor, int]:
    """Hidden states of all tokens after the shared prefix, and the length of that prefix."""
    rows, length = batch.token_BT.shape
    prefix = _prefix_length(batch)
    position_T = torch.arange(length)
    cache = None
    if prefix:
        cache = DynamicCache()
        policy.hidden(
            batch.token_BT[:1, :prefix], position_BT=position_T[None, :prefix], cache=cache
        )
        for layer in cache.layers:  # a view: gradients of all rows add up in the one prefix
            layer.keys = layer.keys.expand(rows, -1, -1, -1)
            layer.values = layer.values.expand(rows, -1, -1, -1)
    # Padding stands at the end only, so the causal rule alone keeps it out of real tokens.
    causal = (position_T[None, :] <= position_T[prefix:, None])[None, None]
    hidden = policy.hidden(
        batch.token_BT[:, prefix:], position_BT=position_T[None, prefix:], mask=causal, cache=cache
    )
    return hidden, prefix


def _prefix_length(batch: Batch) -> int:
    """Tokens that all rows share and that no state needed for an action lies in."""
    rows = [
        row[:n].tolist() for row, n in zip(batch.token_BT, batch.length_B.tolist(), strict=True)
    ]
    first_action = int(batch.action_mask_BT.int().argmax(dim=1).min())
    return max(0, min(common_prefix(rows), first_action - 1))

"""An episode as a table: a row for each token, with who says it and what PPO makes of it.

All numbers come from the functions that training uses; here they are only laid out. Knows no page.

Axes: T token of the episode, M action tokens of the episode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import losses
from agentrl_lab.learner.forward import score_actions
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.ppo import make_targets
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.learner.trajectories import Stage, Trajectory, pack

# What the name in a role marker says about the text after it. Tools are told with the system text.
_SPEAKERS = {"system": "system", "tools": "system", "user": "user", "tool": "tool"}
_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token of an episode. The numbers are None on tokens that the policy did not write."""

    position: int
    text: str
    """Decoded alone; blanks and line breaks have a visible sign."""
    role: str
    """system, user, tool, assistant (the policy), or template: marks that nobody says."""
    is_action: bool
    turn: int
    """Counted from 1; what is read before an action belongs to that action's turn."""
    logprob_old: float | None = None
    logprob_new: float | None = None
    ratio: float | None = None
    clipped: bool | None = None
    value_old: float | None = None
    reward: float | None = None
    return_: float | None = None
    advantage: float | None = None
    advantage_whitened: float | None = None
    entropy: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A number of the action tokens, as tables and colours show it."""

    name: str
    attribute: str
    """Of TokenRow."""
    neutral: float
    """Neither blue nor orange."""
    form: str
    meaning: str


COLUMNS = {
    column.name: column
    for column in (
        Column("logprob_old", "logprob_old", 0.0, "z.3f",
               "log-probability of the token when it was written, in nats; 0 is certain"),
        Column("logprob_new", "logprob_new", 0.0, "z.3f",
               "its log-probability under the policy as it is now, in nats; 0 is certain"),
        Column("ratio", "ratio", 1.0, "z.3f",
               "new over old probability: above 1 the policy has become more inclined to write it"),
        Column("value", "value_old", 0.0, "+z.3f",
               "the return that the value head predicted just before the token was written"),
        Column("reward", "reward", 0.0, "+z.3f",
               "what the environment paid for the turn; it stands on the turn's last token"),
        Column("return", "return_", 0.0, "+z.3f",
               "advantage plus value: what the value head should have said"),
        Column("advantage", "advantage", 0.0, "+z.3f",
               "how much better than predicted the episode went from this token on (GAE)"),
        Column("advantage_whitened", "advantage_whitened", 0.0, "+z.3f",
               "the advantage, shifted and scaled to mean 0 and deviation 1 over the action "
               "tokens of several episodes: what the policy loss uses"),
        Column("entropy", "entropy", 0.0, "z.3f",
               "how undecided the policy as it is now is at this token, in nats; 0 is certain"),
    )
}  # fmt: skip
"""What a strip can be coloured by, in the order of the tables."""


def token_rows(
    trajectory: Trajectory,
    policy: Policy,
    ppo: PPOConfig,
    *,
    temperature: float,
    episodes: Sequence[Trajectory] = (),
) -> list[TokenRow]:
    """One row for each token of the episode.

    Args:
        trajectory: the episode, as it was collected.
        policy: gives logprob_new, ratio, clipped and entropy; it may have moved since.
        ppo: discounts and clip range.
        temperature: of the rollout; 0 is greedy, and scored at temperature 1 as the rollout does.
        episodes: all episodes of the update; advantages are whitened over them and this one.

    Raises:
        ValueError: the temperature is negative, or the trajectory does not fit together.
    """
    numbers = _numbers(trajectory, policy, ppo, temperature, episodes)
    written = dict(zip(trajectory.action_positions(), numbers, strict=True))
    roles = token_roles(trajectory, policy.tokenizer)
    return [
        TokenRow(
            position, visible(policy.tokenizer.tokenizer.decode([token])), role,
            position in written, _turn(trajectory.stages, position), **written.get(position, {}),
        )
        for position, (token, role) in enumerate(zip(trajectory.ids, roles, strict=True))
    ]  # fmt: skip


@torch.no_grad()
def _numbers(
    trajectory: Trajectory, policy: Policy, ppo: PPOConfig, temperature: float,
    episodes: Sequence[Trajectory],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The numbers of each action token, by their names in TokenRow."""
    if temperature < 0:
        raise ValueError(f"temperature must be 0 (greedy) or above, got {temperature}")
    # In double precision the sum of advantage and value gives the advantage back.
    batch = pack([trajectory, *(t for t in episodes if t is not trajectory)], torch.float64)
    targets, mask_T = make_targets(batch, ppo), batch.action_mask_BT[0]
    scored = score_actions(policy, pack([trajectory]))
    logits_MV = scored.logits_MV / (temperature or 1.0)
    new_M = losses.chosen_logprob(logits_MV, scored.token_M)
    old_M, value_M = batch.logprob_old_BT[0, mask_T], batch.value_old_BT[0, mask_T]
    return_M, whitened_M = targets.return_BT[0, mask_T], targets.advantage_BT[0, mask_T]
    columns = {
        "logprob_old": old_M, "logprob_new": new_M,
        "ratio": losses.log_ratio(new_M, old_M, torch.ones_like(new_M)).exp(),
        "clipped": _clipped(new_M, old_M, whitened_M, ppo.clip_ratio),
        "value_old": value_M, "reward": batch.reward_BT[0, mask_T], "return_": return_M,
        "advantage": return_M - value_M, "advantage_whitened": whitened_M,
        "entropy": losses.token_entropy(logits_MV),
    }  # fmt: skip
    rows = zip(*(column_M.tolist() for column_M in columns.values()), strict=True)
    return (dict(zip(columns, row, strict=True)) for row in rows)


def _clipped(new_M: Tensor, old_M: Tensor, advantage_M: Tensor, clip_ratio: float) -> Tensor:
    """Whether the clip takes a token's gradient away: the loss's own share, over one token."""
    tokens = zip(new_M[:, None], old_M[:, None], advantage_M[:, None], strict=True)
    one = torch.ones(1, dtype=torch.bool)
    return torch.stack([
        losses.clip_fraction(*token, one, clip_ratio=clip_ratio) for token in tokens
    ]).bool()  # fmt: skip


def token_roles(trajectory: Trajectory, tokenizer: ChatTokenizer) -> list[str]:
    """Who says each token: the policy its actions, others what follows a mark with their name."""
    special, actions = set(tokenizer.tokenizer.all_special_ids), set(trajectory.action_positions())
    role, line, found = "template", None, []
    for position, token in enumerate(trajectory.ids):
        text = tokenizer.tokenizer.decode([token])
        if position in actions:
            role, line = "template", None
        elif token in special:
            role = _speaker(text)
            line = "" if role == "template" else None
        elif line is not None:  # some templates write the name as a plain line after the mark
            line += text
            role, line = (_speaker(line), None) if "\n" in text else (role, line)
        else:
            found.append(_heard(role, position > trajectory.stages[0].start))
            continue
        found.append("assistant" if position in actions else "template")
    return found


def _speaker(mark: str) -> str:
    return _SPEAKERS.get(re.sub("[^a-z]", "", mark.lower()), "template")


def _heard(role: str, has_acted: bool) -> str:
    """After the first action only tools speak, whatever name a template gives them."""
    return "tool" if has_acted and role != "template" else role


def _turn(stages: Sequence[Stage], position: int) -> int:
    return min(1 + sum(stage.stop <= position for stage in stages), len(stages))


def visible(text: str) -> str:
    """The text with a sign for blanks and line breaks; what has no shape is written as its code."""
    return "".join(
        _VISIBLE.get(sign, sign if sign.isprintable() else f"\\u{ord(sign):04x}") for sign in text
    )

"""Trajectories as training sees them, and the buffer that forgets them in time (E1, E6, E9).

Axes: B episode in the batch, T token position (padded), N turn. Alignment: index t of a *_BT tensor
is about token t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl_lab.records import Call, StopReason
from agentrl_lab.world.outcomes import EpisodeOutcome

MAX_USES = 4
"""Epochs a trajectory may serve (E9): later the policy has moved too far from it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One turn: where its action lies in the episode's ids, and what it earned (E6)."""

    start: int
    """First action token; everything before it is this turn's context."""
    stop: int
    """One past the last action token, the end token included when it was sampled."""
    reward: float
    text: str
    invalid: str | None = None
    """Code of an invalid action."""
    call: Call | None = None
    """What the desk executed."""
    was_cut: bool = False
    """Whether a token limit stopped the message."""
    was_winnable: bool = True
    """Whether the episode could still end in success before this action."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode: the ids as they were sampled, and per action token what the sampler knew."""

    index: int
    """Number of the task in its split."""
    ids: tuple[int, ...]
    stages: tuple[Stage, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each action token under the collecting policy, at its temperature."""
    values: tuple[float, ...]
    """Value before each action token was written."""
    entropies: tuple[float, ...]
    """Entropy (nats) of the distribution each action token was drawn from."""
    outcome: EpisodeOutcome
    reward_parts: Mapping[str, float]
    bootstrap: float = 0.0
    """Value after the last action: 0 when terminated, the critic's word when truncated."""

    @property
    def stop(self) -> StopReason:
        return self.outcome.stop

    @property
    def reward(self) -> float:
        return sum(stage.reward for stage in self.stages)

    @property
    def num_action_tokens(self) -> int:
        return len(self.logprobs)

    def action_positions(self) -> list[int]:
        return [t for stage in self.stages for t in range(stage.start, stage.stop)]


@dataclass(frozen=True, slots=True)
class Batch:
    """Trajectories as padded tensors. Masks come from lengths, never from token ids (law 4)."""

    token_BT: Tensor
    length_B: Tensor
    action_mask_BT: Tensor
    turn_BT: Tensor
    """Number of the turn an action token belongs to; -1 elsewhere."""
    logprob_old_BT: Tensor
    value_old_BT: Tensor
    reward_BT: Tensor
    """Each turn's reward on its last action token (law 12)."""
    bootstrap_B: Tensor

    def rows(self, index_B: Tensor) -> Batch:
        """The same for some episodes, cut to the longest of them."""
        longest = int(self.length_B[index_B].max())
        cut = {
            name: value[index_B][:, :longest] if value.dim() == 2 else value[index_B]
            for name in self.__slots__
            for value in (getattr(self, name),)
        }
        return Batch(**cut)


def pack(trajectories: Sequence[Trajectory], dtype: torch.dtype = torch.float32) -> Batch:
    """Padded tensors of some trajectories.

    Raises:
        ValueError: a trajectory has no action token, a turn has none (its reward would have no
            place), turns overlap, or a reward is not finite.
    """
    size = (len(trajectories), max(len(t.ids) for t in trajectories))
    tokens, turns = torch.zeros(size, dtype=torch.long), torch.full(size, -1)
    logprobs, values, rewards = (torch.zeros(size, dtype=dtype) for _ in range(3))
    for row, trajectory in enumerate(trajectories):
        _check(trajectory)
        tokens[row, : len(trajectory.ids)] = torch.tensor(trajectory.ids)
        where = torch.tensor(trajectory.action_positions())
        logprobs[row, where] = torch.tensor(trajectory.logprobs, dtype=dtype)
        values[row, where] = torch.tensor(trajectory.values, dtype=dtype)
        for turn, stage in enumerate(trajectory.stages):
            turns[row, stage.start : stage.stop] = turn
            rewards[row, stage.stop - 1] = stage.reward
    return Batch(
        token_BT=tokens,
        length_B=torch.tensor([len(t.ids) for t in trajectories]),
        action_mask_BT=turns >= 0,
        turn_BT=turns,
        logprob_old_BT=logprobs,
        value_old_BT=values,
        reward_BT=rewards,
        bootstrap_B=torch.tensor([t.bootstrap for t in trajectories], dtype=dtype),
    )


def _check(trajectory: Trajectory) -> None:
    count = sum(stage.stop - stage.start for stage in trajectory.stages)
    if not 0 < count < len(trajectory.ids) or count != trajectory.num_action_tokens:
        raise ValueError(
            f"trajectory of task {trajectory.index} has {count} action tokens in its stages, "
            f"{trajectory.num_action_tokens} log-probabilities and {len(trajectory.ids)} ids"
        )
    free = 1
    for turn, stage in enumerate(trajectory.stages):
        if not free <= stage.start < stage.stop <= len(trajectory.ids):
            raise ValueError(
                f"trajectory of task {trajectory.index} has turn {turn} at [{stage.start}, "
                f"{stage.stop}) of {len(trajectory.ids)} ids: expected a token before it, at least "
                "one of its own, and no overlap with the turn before"
            )
        free = stage.stop
        if not torch.isfinite(torch.tensor(stage.reward)):
            raise ValueError(
                f"trajectory of task {trajectory.index} has reward {stage.reward} in turn {turn}: "
                "rewards must be finite; look at the reward spec"
            )


class StaleTrajectories(RuntimeError):
    """The trajectories in the buffer have served their epochs: collect new ones."""


class TrajectoryBuffer:
    """Trajectories of one policy, each good for at most `max_uses` epochs (E9)."""

    def __init__(self, trajectories: Sequence[Trajectory], max_uses: int = MAX_USES) -> None:
        if not trajectories:
            raise ValueError("the buffer got no trajectories: collect at least one episode")
        self.batch = pack(trajectories)
        self.uses, self.max_uses = 0, max_uses

    def epoch(self, minibatch: int, generator: torch.Generator) -> list[Tensor]:
        """Episode numbers of one pass in random order, in minibatches.

        Raises:
            StaleTrajectories: the trajectories have served `max_uses` epochs.
        """
        if self.uses >= self.max_uses:
            raise StaleTrajectories(
                f"these trajectories have served {self.uses} epochs, at most {self.max_uses} are "
                "allowed (E9): collect new ones with the present policy"
            )
        self.uses += 1
        order = torch.randperm(len(self.batch.length_B), generator=generator)
        return list(order.split(minibatch))

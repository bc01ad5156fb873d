"""Packing of trajectories and the buffer that forgets them: masks by length, rewards in place."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_lab.learner.advantages import gae
from agentrl_lab.learner.trajectories import (
    Batch,
    StaleTrajectories,
    Trajectory,
    TrajectoryBuffer,
    pack,
)
from tests.tiny import random_trajectories, trajectory

Pack = Callable[[Sequence[Trajectory]], Batch]
PAD_AND_END = 0
"""The id that pads a batch; the trajectories below also use it as a sampled end token."""


# Checks: each takes the implementation, so that wrong ones can be fed to it.


def check_mask_from_lengths(pack: Pack) -> None:
    """TOK-03, law 4: the end token a policy sampled counts, padding of the same id does not."""
    # prompt 5, action 6 and the end token; the second episode is longer, so the first is padded
    short = trajectory([5, 6, PAD_AND_END], [(1, 3)], logprobs=[-0.1, -0.2])
    long = trajectory([5, 6, 7, 8, PAD_AND_END], [(1, 5)])
    batch = pack([short, long])
    assert batch.length_B.tolist() == [3, 5]
    assert batch.action_mask_BT.tolist() == [
        [False, True, True, False, False],
        [False, True, True, True, True],
    ]
    assert batch.logprob_old_BT[0, :3].tolist() == pytest.approx([0, -0.1, -0.2])


def check_mask_covers_the_spans(pack: Pack) -> None:
    """Laws 5, 6: the mask is built from where each new action lies, not from running totals."""
    # prompt 3 | action 2 | tool 2 | action 1 | tool 1 | action 3
    batch = pack([trajectory(range(10, 22), [(3, 5), (7, 8), (9, 12)])])
    assert batch.action_mask_BT.int().tolist() == [[0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1]]
    assert batch.turn_BT.tolist() == [[-1, -1, -1, 0, 0, -1, -1, 1, -1, 2, 2, 2]]


def check_reward_on_the_last_action_token(pack: Pack) -> None:
    """PPO-33, laws 12 and 14: neither on the tool token that follows nor on padding."""
    # tokens: p a a END | p a a END t t a: rewards 0.25 and 1
    batch = pack([
        trajectory(range(4), [(1, 4)], [1.0]),
        trajectory(range(11), [(1, 4), (6, 11)], [0.25, 1.0]),
    ])  # fmt: skip
    assert batch.reward_BT[0].tolist() == [0, 0, 0, 1.0, *[0] * 7]
    assert batch.reward_BT[1].tolist() == [0, 0, 0, 0.25, *[0] * 6, 1.0]
    assert batch.reward_BT.sum(dim=1).tolist() == [1.0, 1.25]
    assert not batch.reward_BT[~batch.action_mask_BT].any()


CHECKS = {
    "mask_from_lengths": check_mask_from_lengths,
    "mask_covers_the_spans": check_mask_covers_the_spans,
    "reward_in_place": check_reward_on_the_last_action_token,
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_pack_numbers_by_hand(check):
    check(pack)


def changed(change: Callable[[Batch], dict]) -> Pack:
    """`pack` with some of its tensors replaced."""

    def wrong(trajectories: Sequence[Trajectory]) -> Batch:
        batch = pack(trajectories)
        fields = {name: getattr(batch, name) for name in Batch.__slots__}
        return Batch(**{**fields, **change(batch)})

    return wrong


def cumulative_mask(batch: Batch) -> dict:
    """Each turn's mask as long as everything up to it (law 6)."""
    mask = batch.action_mask_BT.clone()
    for row, turns in enumerate(batch.turn_BT):
        first = int((turns == 0).int().argmax())
        mask[row, first : first + int((turns >= 0).sum())] = True
    return {"action_mask_BT": mask}


WRONG_PACKS = {
    "mask_where_id_is_not_pad": (
        changed(lambda b: {"action_mask_BT": b.action_mask_BT & (b.token_BT != PAD_AND_END)}),
        "mask_from_lengths",
    ),
    "length_from_ids": (
        changed(lambda b: {"length_B": (b.token_BT != PAD_AND_END).sum(dim=1)}),
        "mask_from_lengths",
    ),
    "mask_of_running_totals": (changed(cumulative_mask), "mask_covers_the_spans"),
    "mask_with_the_prompt_that_opens_a_turn": (
        changed(lambda b: {"action_mask_BT": b.action_mask_BT | b.action_mask_BT.roll(-1, 1)}),
        "mask_covers_the_spans",
    ),
    "reward_one_token_late": (
        changed(lambda b: {"reward_BT": b.reward_BT.roll(1, 1)}),
        "reward_in_place",
    ),
    "reward_on_the_last_token_of_the_row": (
        changed(lambda b: {"reward_BT": torch.zeros_like(b.reward_BT)
                           .index_fill(1, torch.tensor([10]), 1.0)}),
        "reward_in_place",
    ),
    "rewards_of_all_turns_at_the_end": (
        changed(lambda b: {"reward_BT": b.reward_BT.cumsum(1) * (b.turn_BT == 1)}),
        "reward_in_place",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "check"), WRONG_PACKS.values(), ids=WRONG_PACKS.keys())
def test_pack_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        CHECKS[check](wrong)


def test_reward_on_a_tool_token_would_be_dropped_silently():
    """Law 12: why the place of the reward matters at all."""
    batch = pack([trajectory(range(6), [(1, 3)], [1.0])])
    late = batch.reward_BT.roll(1, 1)
    named = {"gamma": 1.0, "gae_lambda": 1.0}
    args = (batch.value_old_BT, batch.action_mask_BT, batch.bootstrap_B)
    assert gae(batch.reward_BT, *args, **named).sum() == 2.0
    assert gae(late, *args, **named).sum() == 0.0


def test_pack_turns_without_reward_are_turns():
    """Law 15: turn ends are known, not guessed from rewards that are not 0."""
    batch = pack([trajectory(range(9), [(1, 3), (4, 6), (7, 9)], [0.0, 0.0, 0.0])])
    assert batch.turn_BT.max() == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_pack_keeps_every_number_in_its_place(seed, number):
    episodes = random_trajectories(50, number, seed=seed)
    batch = pack(episodes, dtype=torch.float64)
    for row, episode in enumerate(episodes):
        length = len(episode.ids)
        assert tuple(batch.token_BT[row, :length].tolist()) == episode.ids
        assert not batch.token_BT[row, length:].any()
        where = batch.action_mask_BT[row].nonzero().flatten().tolist()
        assert where == episode.action_positions()
        assert batch.action_mask_BT[row].sum() == episode.num_action_tokens
        assert batch.logprob_old_BT[row, where].tolist() == list(episode.logprobs)
        assert batch.value_old_BT[row, where].tolist() == list(episode.values)
        assert batch.reward_BT[row].sum().item() == pytest.approx(episode.reward)
    for name in ("action_mask_BT", "turn_BT", "logprob_old_BT", "value_old_BT", "reward_BT"):
        assert getattr(batch, name).shape == batch.token_BT.shape


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(4)), st.integers(1, 4))
def test_batch_rows_equal_the_pack_of_those_episodes(seed, order, count):
    episodes = random_trajectories(50, 4, seed=seed)
    chosen = order[:count]
    part, expected = pack(episodes).rows(torch.tensor(chosen)), pack([episodes[i] for i in chosen])
    for name in Batch.__slots__:
        assert torch.equal(getattr(part, name), getattr(expected, name)), name


# Refusals


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_pack_reward_that_is_not_finite_is_refused(number):
    """REW-10: before any tensor, and so before any optimizer step."""
    broken = trajectory(range(8), [(1, 3), (5, 7)], [0.0, number], index=7)
    with pytest.raises(ValueError, match=r"task 7 has reward .* in turn 1: rewards must be finite"):
        pack([trajectory(range(8), [(1, 3)], [1.0]), broken])


def test_pack_mask_of_nothing_or_of_everything_is_refused():
    """Law 7."""
    with pytest.raises(ValueError, match="0 action tokens"):
        pack([trajectory(range(4), [])])
    with pytest.raises(ValueError, match=r"4 action tokens .* 4 ids"):
        pack([trajectory(range(4), [(0, 4)])])


def test_pack_log_probabilities_of_another_count_are_refused():
    """Law 6: mask length and number of log-probabilities belong together."""
    with pytest.raises(ValueError, match="2 action tokens in its stages, 3 log-probabilities"):
        pack([trajectory(range(6), [(1, 3)], logprobs=[-1, -1, -1])])


@pytest.mark.parametrize(
    "spans",
    [[(2, 2), (3, 5)], [(2, 4), (4, 4)], [(0, 2)], [(3, 5), (1, 3)], [(1, 3), (2, 5)], [(4, 8)]],
    ids=["empty", "empty_last", "first_id", "out_of_order", "overlap", "past_the_end"],
)
def test_pack_turn_without_a_place_of_its_own_is_refused(spans):
    """Law 12: the reward of an empty turn would land on a token of somebody else."""
    with pytest.raises(ValueError, match=r"has turn \d at|action tokens"):
        pack([trajectory(range(6), spans)])


def test_pack_two_actions_in_a_row_are_allowed():
    batch = pack([trajectory(range(6), [(1, 3), (3, 5)], [0.5, 1.0])])
    assert batch.reward_BT.tolist() == [[0, 0, 0.5, 0, 1.0, 0]]


# Buffer


def buffer(number: int = 5, **named) -> TrajectoryBuffer:
    return TrajectoryBuffer(random_trajectories(50, number), **named)


def test_buffer_epoch_serves_each_episode_once_in_random_order():
    kept, generator = buffer(5), torch.Generator().manual_seed(0)
    orders = []
    for _ in range(4):
        parts = kept.epoch(2, generator)
        assert [len(part) for part in parts] == [2, 2, 1]
        orders.append(torch.cat(parts).tolist())
        assert sorted(orders[-1]) == [0, 1, 2, 3, 4]
    assert len(set(map(tuple, orders))) > 1


def test_buffer_refuses_a_fifth_epoch():
    """E9, law 21: what bounds the KL is the step size times the epochs, so the epochs end."""
    kept, generator = buffer(3), torch.Generator().manual_seed(0)
    for _ in range(4):
        kept.epoch(2, generator)
    with pytest.raises(StaleTrajectories, match="served 4 epochs, at most 4"):
        kept.epoch(2, generator)
    assert kept.uses == 4


def test_buffer_same_generator_same_order():
    first, second = (
        buffer(5).epoch(2, torch.Generator().manual_seed(3)) for _ in range(2)
    )  # fmt: skip
    assert torch.equal(torch.cat(first), torch.cat(second))


def test_buffer_without_trajectories_is_refused():
    with pytest.raises(ValueError, match="no trajectories"):
        TrajectoryBuffer([])


def test_trajectory_reward_is_the_sum_of_its_turns():
    episode = trajectory(range(9), [(1, 3), (4, 6), (7, 9)], [0.1, 0.0, 1.0])
    assert episode.reward == pytest.approx(1.1)
    assert episode.action_positions() == [1, 2, 4, 5, 7, 8]
    assert episode.num_action_tokens == 6

"""The fast scoring of action tokens equals a plain one: values, gradients, and nothing in between.

Axes: B episode, T token position, M action tokens, V vocabulary.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from agentrl_lab.learner import losses
from agentrl_lab.learner.forward import Scored, micro_batches, score_actions
from agentrl_lab.learner.trajectories import Batch, pack
from tests import tiny
from tests.tiny import EndingPolicy, NumberTokenizer, random_trajectories, trajectory

VOCABULARY = 40
Score = Callable[[EndingPolicy, Batch], Scored]


def double_policy(seed: int = 0, **named) -> EndingPolicy:
    model = tiny.llama(VOCABULARY, hidden=16, seed=seed, **named).double()
    return EndingPolicy(model, NumberTokenizer())


def plain(policy: EndingPolicy, batch: Batch) -> Scored:
    """One padded forward pass of the whole model with the usual attention mask, no shortcut."""
    length = batch.token_BT.shape[1]
    attention_mask = (torch.arange(length) < batch.length_B[:, None]).long()
    hidden_BTH = policy.model.base_model(
        input_ids=batch.token_BT, attention_mask=attention_mask
    ).last_hidden_state
    before_BT = F.pad(batch.action_mask_BT[:, 1:], (0, 1))
    hidden_MH = hidden_BTH[before_BT]
    logits_MV = policy.model.lm_head(hidden_MH)
    return Scored(logits_MV, policy.value(hidden_MH), batch.token_BT[batch.action_mask_BT])


def gradients(policy: EndingPolicy, score: Score, batches: list[Batch]) -> dict[str, Tensor]:
    """Gradient of a loss that uses log-probability, entropy and value of every action token.

    Each token's weight depends on its place in its episode, so that no two may be mixed up.
    """
    policy.zero_grad(set_to_none=True)
    for batch in batches:
        scored = score(policy, batch)
        place_M = batch.action_mask_BT.nonzero()[:, 1].double()
        weight_M = batch.value_old_BT[batch.action_mask_BT] + place_M.sin()
        loss = (weight_M * losses.chosen_logprob(scored.logits_MV, scored.token_M)).sum()
        loss = loss + (weight_M.cos() * scored.value_M.square()).sum()
        loss = loss + 0.3 * (weight_M * losses.token_entropy(scored.logits_MV)).sum()
        loss.backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Largest difference of a parameter's gradient, relative to that gradient's norm."""
    assert found.keys() == expected.keys()
    return max(float((found[n] - expected[n]).norm() / expected[n].norm()) for n in expected)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return pack(random_trajectories(VOCABULARY, 6), torch.float64)


EPISODES = {
    "shared_prefix": random_trajectories(VOCABULARY, 6),
    "no_shared_prefix": [
        trajectory([7, *t.ids], [(s.start + 1, s.stop + 1) for s in t.stages], values=t.values)
        if t.index
        else t
        for t in random_trajectories(VOCABULARY, 4)
    ],
    "one_episode": random_trajectories(VOCABULARY, 1),
    "the_same_twice": random_trajectories(VOCABULARY, 1) * 2,
    "action_right_after_the_first_id": [
        trajectory([3, 4, 5, 6, 7, 8], [(1, 3), (4, 6)], values=[0.1, 0.2, 0.3, 0.4]),
        trajectory([3, 4, 9, 6], [(1, 2), (3, 4)], values=[0.5, 0.6]),
    ],
    "prefix_longer_than_an_action": [
        trajectory([3, 4, 5, 6, 7, 8], [(2, 4)], values=[0.1, 0.2]),
        trajectory([3, 4, 5, 6, 7, 9], [(2, 4)], values=[0.3, 0.4]),
    ],
}


@pytest.mark.parametrize("episodes", EPISODES.values(), ids=EPISODES.keys())
def test_fast_scores_and_gradients_equal_the_plain_ones(episodes, sharp_norm):
    policy, batch = double_policy(), pack(episodes, torch.float64)
    fast, slow = score_actions(policy, batch), plain(policy, batch)
    assert_close(fast.logits_MV, slow.logits_MV, rtol=0, atol=1e-12)
    assert_close(fast.value_M, slow.value_M, rtol=0, atol=1e-12)
    assert torch.equal(fast.token_M, slow.token_M)
    expected = gradients(policy, plain, [batch])
    assert distance(gradients(policy, score_actions, [batch]), expected) < 1e-11
    for size in (1, 2, len(episodes)):
        parts = micro_batches(batch, torch.arange(len(episodes)), size)
        assert distance(gradients(policy, score_actions, parts), expected) < 1e-11, size


def test_fast_gradients_with_the_norm_as_shipped(batch):
    """Llama's norm computes in float32, also in a float64 model: that is what limits agreement."""
    policy = double_policy()
    expected = gradients(policy, plain, [batch])
    assert distance(gradients(policy, score_actions, [batch]), expected) < 1e-5


def test_rotary_angles_of_a_position_are_the_same_in_every_call():
    """They are made in float32 too, but depend on the position alone, so both paths agree."""
    rotary = tiny.llama(VOCABULARY, hidden=16).double().model.rotary_emb
    states, positions = torch.zeros(1, 12, 16, dtype=torch.float64), torch.arange(12)[None]
    whole = rotary(states, position_ids=positions)
    part = rotary(states[:, 5:], position_ids=positions[:, 5:])
    assert all(torch.equal(a[:, 5:], b) for a, b in zip(whole, part, strict=True))


def test_fast_gradients_with_learned_positions_equal_the_plain_ones(batch):
    """ROL-01, training side: right padding, positions counted from the first real token."""
    policy = EndingPolicy(tiny.gpt2(VOCABULARY, hidden=16).double(), NumberTokenizer())
    expected = gradients(policy, plain, [batch])
    assert distance(gradients(policy, score_actions, [batch]), expected) < 1e-11


# Wrong versions that the comparison must reject


def own_state(policy, batch):
    """Scores a token by the state that has already read it (no shift by one)."""
    fields = {name: getattr(batch, name) for name in Batch.__slots__}
    fields = {n: F.pad(x, (0, 1)) if x.dim() == 2 else x for n, x in fields.items()}
    fields["action_mask_BT"] = fields["action_mask_BT"].roll(1, 1)
    shifted = Batch(**fields)
    scored = plain(policy, shifted)
    return Scored(scored.logits_MV, scored.value_M, batch.token_BT[batch.action_mask_BT])


def left_padded_positions(policy, batch):
    """Gives every row the positions of a batch padded on the left."""
    real = policy.model.base_model.forward
    shift = batch.token_BT.shape[1] - batch.length_B[:, None]

    def forward(input_ids, position_ids=None, **named):
        positions = torch.arange(input_ids.shape[1])[None] + shift
        return real(input_ids=input_ids, position_ids=positions, **named)

    policy.model.base_model.forward = forward
    try:
        return plain(policy, batch)
    finally:
        del policy.model.base_model.forward


def prefix_without_gradient(policy, batch):
    """Runs the shared prefix under no_grad: right values, wrong gradients."""
    real = policy.hidden

    def hidden(token_BT, *, position_BT, mask=None, cache):
        with torch.set_grad_enabled(mask is not None):
            return real(token_BT, position_BT=position_BT, mask=mask, cache=cache)

    policy.hidden = hidden
    try:
        return score_actions(policy, batch)
    finally:
        del policy.hidden


@pytest.mark.parametrize("wrong", [own_state, left_padded_positions, prefix_without_gradient])
def test_comparison_rejects(wrong, batch, sharp_norm):
    # learned positions see any shift; rotary ones see only differences of positions
    learned = wrong is left_padded_positions
    policy = (
        EndingPolicy(tiny.gpt2(VOCABULARY, hidden=16).double(), NumberTokenizer())
        if learned
        else double_policy()
    )
    expected = gradients(policy, plain, [batch])
    assert distance(gradients(policy, wrong, [batch]), expected) > 1e-3


# What is scored, and what has no say


def test_scores_come_in_the_row_order_of_the_mask(batch):
    policy = double_policy()
    scored = score_actions(policy, batch)
    for row in range(len(batch.length_B)):
        alone = score_actions(policy, batch.rows(torch.tensor([row])))
        places = batch.action_mask_BT.nonzero()[:, 0] == row
        assert_close(scored.logits_MV[places], alone.logits_MV, rtol=1e-6, atol=1e-6)
        assert_close(scored.value_M[places], alone.value_M, rtol=1e-6, atol=1e-6)


def test_padding_has_no_say(batch, sharp_norm):
    """ROL-01, law 22: neither its length nor its ids change a score or a gradient."""
    policy = double_policy()
    expected = gradients(policy, score_actions, [batch])
    filled = batch.token_BT.clone()
    filled[torch.arange(filled.shape[1]) >= batch.length_B[:, None]] = 33
    fields = {name: getattr(batch, name) for name in Batch.__slots__}
    longer = {n: F.pad(x, (0, 5)) if x.dim() == 2 else x for n, x in fields.items()}
    for changed in ({**fields, "token_BT": filled}, longer):
        assert distance(gradients(policy, score_actions, [Batch(**changed)]), expected) < 1e-12


def test_later_tokens_have_no_say(batch):
    """What comes after an action never changes its score."""
    policy = double_policy()
    last = batch.action_mask_BT.int().cumsum(1).argmax(dim=1)  # place of the last action token
    after = torch.arange(batch.token_BT.shape[1]) > last[:, None]
    changed = {name: getattr(batch, name) for name in Batch.__slots__}
    changed["token_BT"] = torch.where(after, 11, batch.token_BT)
    found = score_actions(policy, Batch(**changed)).logits_MV
    assert_close(found, score_actions(policy, batch).logits_MV, rtol=0, atol=1e-6)


def test_logits_are_made_at_action_tokens_only(batch, monkeypatch):
    """PPO-31, laws 2 and 5: no row that predicts prompt, tool result or padding exists at all."""
    policy, sizes = double_policy(), []
    real = policy.logits
    monkeypatch.setattr(policy, "logits", lambda hidden: sizes.append(len(hidden)) or real(hidden))
    scored = score_actions(policy, batch)
    assert sizes == [int(batch.action_mask_BT.sum())] == [len(scored.token_M)]


def test_policy_loss_gradient_reaches_the_states_before_actions_only(batch):
    """PPO-31 on the states that the logits are made of."""
    policy, kept = double_policy(), []

    def keep(module: object, args: object, states: Tensor) -> None:
        states.retain_grad()
        kept.append(states)

    policy.model.base_model.norm.register_forward_hook(keep)
    scored = score_actions(policy, batch)
    logprob_M = losses.chosen_logprob(scored.logits_MV, scored.token_M)
    mask_M = torch.ones_like(logprob_M)
    losses.policy_loss(logprob_M, logprob_M.detach(), mask_M, mask_M, clip_ratio=0.15).backward()
    rest = kept[-1].grad  # [B, S, H]: the states after the shared prefix
    start = batch.token_BT.shape[1] - rest.shape[1]
    before = F.pad(batch.action_mask_BT[:, 1:], (0, 1))[:, start:]
    assert not rest[~before].any()
    assert rest[before].abs().amax(dim=1).min() > 0


@pytest.mark.parametrize("detach", [True, False])
def test_value_errors_reach_the_transformer_only_when_shared(batch, detach):
    """PPO-40."""
    policy = double_policy()
    score_actions(policy, batch, detach_value=detach).value_M.square().sum().backward()
    gradients = [p.grad for p in policy.model.parameters() if p.grad is not None]
    assert any(bool(g.any()) for g in gradients) is not detach
    assert policy.value_head.weight.grad.any()


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
def test_dropout_is_off_whatever_the_mode(make, batch):
    """PPO-15: two passes are identical, and the mode is left as found."""
    policy = EndingPolicy(make(VOCABULARY, dropout=0.1), NumberTokenizer())
    expected = score_actions(policy.eval(), batch)
    policy.train()
    for _ in range(2):
        found = score_actions(policy, batch)
        assert torch.equal(found.logits_MV, expected.logits_MV)
        assert torch.equal(found.value_M, expected.value_M)
    assert policy.training and policy.model.training


def test_dropout_would_be_seen(batch):
    """The check above can fail: with dropout on, two passes differ."""
    policy = EndingPolicy(tiny.llama(VOCABULARY, dropout=0.1), NumberTokenizer()).train()
    first, second = (plain(policy, batch).logits_MV for _ in range(2))
    assert not torch.equal(first, second)


def test_micro_batches_are_sorted_by_length_and_hold_each_episode_once(batch):
    rows_B = torch.tensor([4, 0, 5, 2])
    parts = micro_batches(batch, rows_B, 3)
    lengths = torch.cat([part.length_B for part in parts]).tolist()
    assert lengths == sorted(batch.length_B[rows_B].tolist())
    assert [len(part.length_B) for part in parts] == [3, 1]
    for part in parts:
        assert part.token_BT.shape[1] == part.length_B.max()

"""GAE, returns and whitening: numbers by hand, properties, and the wrong versions they are not.

Axes: B episode, T token position. In the hand-worked rows `a` is an action token, `t` a tool token.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from agentrl_lab.learner.advantages import explained_variance, gae, rewards_to_go, whiten

GAMMA, LAMBDA = 0.99, 0.95
Gae = Callable[..., Tensor]
Returns = Callable[..., Tensor]
NAN, INF = float("nan"), float("inf")


def rows(*numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def same(found: Tensor, expected: Tensor) -> None:
    assert_close(found.double(), expected, atol=1e-5, rtol=0.0)


# Checks: each takes the implementation, so that wrong ones can be fed to it.


def check_terminated(gae: Gae) -> None:
    # delta: 0+0.99*0.4-0.2 = 0.196, 0+0.99*0.6-0.4 = 0.194, 1-0.6 = 0.4
    # A2 = 0.4; A1 = 0.194+0.9405*0.4 = 0.5702; A0 = 0.196+0.9405*0.5702 = 0.732273
    found = gae(rows([0, 0, 1]), rows([0.2, 0.4, 0.6]), rows([1, 1, 1]), torch.zeros(1).double(),
                gamma=GAMMA, gae_lambda=LAMBDA)  # fmt: skip
    same(found, rows([0.732273, 0.5702, 0.4]))


def check_truncated(gae: Gae) -> None:
    """PPO-02, law 16: an episode that was cut bootstraps from the value after its last action."""
    # last delta: 1 + 0.99*0.8 - 0.6 = 1.192; A1 = 0.194 + 0.9405*1.192 = 1.315076
    reward, value = rows([0, 0, 1]), rows([0.2, 0.4, 0.6])
    found = gae(reward, value, rows([1, 1, 1]), torch.tensor([0.8]).double(),
                gamma=GAMMA, gae_lambda=LAMBDA)  # fmt: skip
    same(found, rows([1.432829, 1.315076, 1.192]))
    same(found + value, rows([1.632829, 1.715076, 1.792]))


def check_no_leak(gae: Gae) -> None:
    """PPO-05: nothing of one episode reaches another."""
    # episode 1: delta1 = 0.99*0.7-0.5 = 0.193, delta0 = 0.99*0.5-0.3 = 0.195,
    #            A0 = 0.195 + 0.9405*0.193 = 0.376516;  episode 2: 1 - 10 = -9, then padding
    found = gae(rows([0, 0], [1, 0]), rows([0.3, 0.5], [10, 0]), rows([1, 1], [1, 0]),
                torch.tensor([0.7, 0.0]).double(), gamma=GAMMA, gae_lambda=LAMBDA)  # fmt: skip
    same(found, rows([0.376516, 0.193], [-9.0, 0.0]))


def check_skips_tool_tokens(gae: Gae) -> None:
    """Law 10: no value, no TD error and no decay is taken on tool tokens."""
    # tokens:                a    t    t    a
    reward, value = rows([0.0, 9.0, 9.0, 1.0]), rows([0.5, 7.0, 7.0, 0.25])
    found = gae(reward, value, rows([1, 0, 0, 1]), torch.zeros(1).double(),
                gamma=0.5, gae_lambda=0.5)  # fmt: skip
    # last: 1 - 0.25 = 0.75;  first: 0.5*0.25 - 0.5 + 0.25*0.75 = -0.1875
    same(found, rows([-0.1875, 0.0, 0.0, 0.75]))


def check_reward_of_every_turn(gae: Gae) -> None:
    """Law 15: a turn that earns nothing is a turn all the same."""
    # tokens a t a a t a, turns 0, 1, 1, 2; gamma 0.5, lambda 1, V = 0: rewards-to-go by turn
    reward = rows([1.0, 0, 0, 0, 0, 4.0])
    turn = torch.tensor([[0, -1, 1, 1, -1, 2]])
    found = gae(reward, torch.zeros_like(reward), turn >= 0, torch.zeros(1).double(),
                gamma=0.5, gae_lambda=1.0, turn_BT=turn)  # fmt: skip
    # turn 2: 4; turn 1: 0.5*4 = 2 on both tokens; turn 0: 1 + 0.5*2 = 2
    same(found, rows([2.0, 0, 2.0, 2.0, 0, 4.0]))


def check_turns(gae: Gae) -> None:
    """Law 17: with turn_BT the discount counts turns, whatever the number of tokens in them."""
    # a a t a a, turns 0 0 - 1 1; gamma 0.5, lambda 0.5; reward 1 ends turn 0, reward 2 ends turn 1
    reward, value = rows([0, 1.0, 5, 0, 2.0]), rows([0.1, 0.2, 5, 0.3, 0.4])
    turn = torch.tensor([[0, 0, -1, 1, 1]])
    found = gae(reward, value, turn >= 0, torch.tensor([0.8]).double(),
                gamma=0.5, gae_lambda=0.5, turn_BT=turn)  # fmt: skip
    # t4: 2 + 0.5*0.8 - 0.4 = 2.0             (crosses to the bootstrap)
    # t3: 0 + 0.4 - 0.3 + 1*2.0 = 2.1         (inside turn 1: gamma and lambda are 1)
    # t1: 1 + 0.5*0.3 - 0.2 + 0.25*2.1 = 1.475  (crosses into turn 1)
    # t0: 0 + 0.2 - 0.1 + 1*1.475 = 1.575
    same(found, rows([1.575, 1.475, 0, 2.1, 2.0]))


GAE_CHECKS = {
    "terminated": check_terminated,
    "truncated": check_truncated,
    "no_leak": check_no_leak,
    "skips_tool_tokens": check_skips_tool_tokens,
    "reward_of_every_turn": check_reward_of_every_turn,
    "turns": check_turns,
}


@pytest.mark.parametrize("check", GAE_CHECKS.values(), ids=GAE_CHECKS.keys())
def test_gae_numbers_by_hand(check):
    check(gae)


def plain_gae(
    reward, value, mask, bootstrap, *, gamma, gae_lambda, turn_BT=None,
    skip_tools=True, decay_on_tools=False, flat=False, terminal=None, sign=1.0, restart=False,
    per_token=False,
):  # fmt: skip
    """GAE as one slow loop, with switches that break it. Without a switch it is right."""
    found = torch.zeros_like(value)
    shape = value.shape
    if flat:  # all episodes as one long row
        reward, value, mask = (x.reshape(1, -1) for x in (reward, value, mask))
        found = found.reshape(1, -1)
        bootstrap = bootstrap[-1:]
    for b in range(value.shape[0]):
        next_value = float(bootstrap[b]) if terminal is None else terminal
        next_advantage, next_turn = 0.0, None
        for t in reversed(range(value.shape[1])):
            if skip_tools and not mask[b, t]:
                if decay_on_tools:
                    next_advantage *= gamma * gae_lambda
                if restart:
                    next_value, next_advantage = 0.0, 0.0
                continue
            turn = None if turn_BT is None or per_token else int(turn_BT[b, t])
            inside = turn is not None and turn == next_turn
            g, decay = (1.0, 1.0) if inside else (gamma, gamma * gae_lambda)
            delta = float(reward[b, t]) + g * next_value - float(value[b, t])
            next_advantage = sign * delta + decay * next_advantage
            next_value, next_turn = float(value[b, t]), turn
            found[b, t] = next_advantage
    return found.reshape(shape) * mask.reshape(shape)


def with_fault(**fault) -> Gae:
    return lambda *args, **named: plain_gae(*args, **named, **fault)


WRONG_GAE = {
    "takes_values_of_tool_tokens": (with_fault(skip_tools=False), "skips_tool_tokens"),
    "decays_per_tool_token": (with_fault(decay_on_tools=True), "skips_tool_tokens"),
    "restarts_at_tool_tokens": (with_fault(restart=True), "skips_tool_tokens"),
    "leaks_between_episodes": (with_fault(flat=True), "no_leak"),
    "treats_truncation_as_terminal": (with_fault(terminal=0.0), "truncated"),
    "bootstraps_a_true_end": (with_fault(terminal=0.8), "terminated"),
    "flips_the_sign": (with_fault(sign=-1.0), "terminated"),
    "discounts_tokens_instead_of_turns": (with_fault(per_token=True), "turns"),
    "cuts_credit_at_the_turn": (with_fault(restart=True), "reward_of_every_turn"),
}


@pytest.mark.parametrize(("wrong", "check"), WRONG_GAE.values(), ids=WRONG_GAE.keys())
def test_gae_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        GAE_CHECKS[check](wrong)


def test_gae_checks_accept_a_slow_right_version():
    for check in GAE_CHECKS.values():
        check(plain_gae)


# Returns


def check_returns_cross_tool_tokens(rewards_to_go: Returns) -> None:
    """PPO-09, law 13: actions before a tool result share in what comes after it."""
    mask = rows([1, 0, 1])
    same(rewards_to_go(rows([0, 0, 1]), mask, gamma=0.5), rows([0.5, 0, 1]))
    mask = rows([1, 1, 0, 0, 1, 1])
    same(rewards_to_go(rows([0, 0, 0, 0, 0, 1]), mask, gamma=1.0), rows([1, 1, 0, 0, 1, 1]))


def check_penalty_of_tool_tokens_stays_out(rewards_to_go: Returns) -> None:
    """PPO-34, law 3: a penalty on a tool token never reaches the returns."""
    # beta 0.1, KL [0.1, 5, 0.2], reward 1 at the last action: [-0.01, -0.5, 1-0.02]
    for on_tool in (-0.5, 0.0, 1e6, NAN):
        found = rewards_to_go(rows([-0.01, on_tool, 0.98]), rows([1, 0, 1]), gamma=1.0)
        same(found, rows([0.97, 0.0, 0.98]))  # -0.01 + 0.98


def mask_times_return(reward, mask, *, gamma, turn_BT=None):
    """The fault of PPO-09: the running return is multiplied by the mask."""
    found, running = torch.zeros_like(reward), torch.zeros_like(reward[:, 0])
    for t in reversed(range(reward.shape[1])):
        running = (reward[:, t] + gamma * running) * mask[:, t]
        found[:, t] = running
    return found


def sums_everything(reward, mask, *, gamma, turn_BT=None):
    """Adds what stands on tool tokens."""
    found, running = torch.zeros_like(reward), torch.zeros_like(reward[:, 0])
    for t in reversed(range(reward.shape[1])):
        running = reward[:, t] + torch.where(mask[:, t] > 0, gamma, 1.0) * running
        found[:, t] = running * mask[:, t]
    return found


def test_rewards_to_go_numbers_by_hand():
    check_returns_cross_tool_tokens(rewards_to_go)
    check_penalty_of_tool_tokens_stays_out(rewards_to_go)


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (mask_times_return, check_returns_cross_tool_tokens),
        (sums_everything, check_penalty_of_tool_tokens_stays_out),
    ],
)
def test_rewards_to_go_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        check(wrong)


def test_rewards_to_go_by_turn_and_by_token_differ():
    """Law 17: per token a long turn shrinks the outcome it is paid for, per turn it does not."""
    # four tokens in one turn, reward 1 on the last; gamma 0.5
    reward, mask = rows([0, 0, 0, 1]), rows([1, 1, 1, 1])
    one_turn = torch.zeros(1, 4)
    same(rewards_to_go(reward, mask, gamma=0.5), rows([0.125, 0.25, 0.5, 1]))
    same(rewards_to_go(reward, mask, gamma=0.5, turn_BT=one_turn), rows([1, 1, 1, 1]))


# Properties


@st.composite
def episodes(draw):
    """Rewards, values, action mask (at least one action a row), bootstraps and turns."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = rng.random(shape) < draw(st.floats(0.2, 1.0))
    mask[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = True
    opens = mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]
    turn = np.where(mask, opens.cumsum(axis=1) - 1, -1)
    reward, value = rng.normal(size=(2, *shape))
    bootstrap = rng.normal(size=shape[0]) * rng.integers(0, 2, shape[0])
    return [torch.from_numpy(x) for x in (reward, value, mask, bootstrap, turn)]


FRACTION = st.sampled_from([0.0, 0.3, 0.9, 1.0])
light = settings(max_examples=60, deadline=None)


@light
@given(episodes(), FRACTION, FRACTION, st.booleans())
def test_gae_equals_the_slow_loop(case, gamma, gae_lambda, by_turn):
    *case, turn = case
    named = {"gamma": gamma, "gae_lambda": gae_lambda, "turn_BT": turn if by_turn else None}
    assert_close(gae(*case, **named), plain_gae(*case, **named), atol=1e-12, rtol=0.0)


@light
@given(episodes(), FRACTION)
def test_gae_lambda_one_is_return_minus_value(case, gamma):
    """Law 18, one end: only rewards (and the bootstrap) count, the critic's later values do not."""
    reward, value, mask, bootstrap, _ = case
    found = gae(reward, value, mask, bootstrap, gamma=gamma, gae_lambda=1.0)
    left = mask.long().flip(1).cumsum(1).flip(1)  # action tokens from here on, this one included
    returns = rewards_to_go(reward, mask, gamma=gamma)
    returns = returns + torch.where(mask, gamma ** left.double() * bootstrap[:, None], 0.0)
    assert_close(found, torch.where(mask, returns - value, 0.0))


@light
@given(episodes(), FRACTION)
def test_gae_lambda_zero_is_the_td_error(case, gamma):
    """Law 18, the other end: one step of reality, then the critic's word."""
    reward, value, mask, bootstrap, _ = case
    found = gae(reward, value, mask, bootstrap, gamma=gamma, gae_lambda=0.0)
    for b in range(len(mask)):
        places = mask[b].nonzero().flatten().tolist()
        after = [*(float(value[b, t]) for t in places[1:]), float(bootstrap[b])]
        for t, next_value in zip(places, after, strict=True):
            delta = float(reward[b, t]) + gamma * next_value - float(value[b, t])
            assert float(found[b, t]) == pytest.approx(delta, abs=1e-12)


def test_gae_larger_lambda_less_bias_more_variance():
    """Law 18, both sides: a wrong critic biases small lambda, noisy rewards shake large lambda."""
    # 3 turns, each pays a standard normal with mean 1; the critic says 0 everywhere.
    # True advantage of the first turn against V = 0 with gamma 1: 3. E[A] = 1 + l + l^2,
    # Var[A] = 1 + l^2 + l^4: (1, 1) at l = 0 and (3, 3) at l = 1.
    reward = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)).double() + 1.0
    value, mask, end = torch.zeros_like(reward), torch.ones_like(reward), torch.zeros(4000).double()
    for gae_lambda in (0.0, 0.5, 1.0):
        first = gae(reward, value, mask, end, gamma=1.0, gae_lambda=gae_lambda)[:, 0]
        assert float(first.mean()) == pytest.approx(1 + gae_lambda + gae_lambda**2, abs=0.1)
        assert float(first.var()) == pytest.approx(1 + gae_lambda**2 + gae_lambda**4, abs=0.2)


@light
@given(episodes(), st.booleans())
def test_gae_content_of_tool_tokens_changes_nothing(case, by_turn):
    """Law 11, first half: also with NaN and infinity there."""
    reward, value, mask, bootstrap, turn = case
    named = {"gamma": GAMMA, "gae_lambda": LAMBDA, "turn_BT": turn if by_turn else None}
    expected = gae(reward, value, mask, bootstrap, **named)
    for filler in (1e9, NAN, -INF):
        filled = [torch.where(mask, x, filler) for x in (reward, value)]
        assert torch.equal(gae(*filled, mask, bootstrap, **named), expected)


@light
@given(episodes(), st.booleans())
def test_gae_equals_gae_on_the_compacted_sequence(case, by_turn):
    """Law 11, second half: as if the tool tokens had never been there."""
    reward, value, mask, bootstrap, turn = case
    named = {"gamma": GAMMA, "gae_lambda": LAMBDA}
    found = gae(reward, value, mask, bootstrap, **named, turn_BT=turn if by_turn else None)
    for b in range(len(mask)):
        compact = [x[b][mask[b]][None] for x in (reward, value, mask)]
        turns = turn[b][mask[b]][None] if by_turn else None
        short = gae(*compact, bootstrap[b : b + 1], **named, turn_BT=turns)
        assert torch.equal(found[b][mask[b]], short[0])


@light
@given(episodes(), st.integers(1, 4))
def test_gae_padding_changes_nothing(case, columns):
    *three, bootstrap, turn = case
    named = {"gamma": GAMMA, "gae_lambda": LAMBDA}
    expected = gae(*three, bootstrap, **named, turn_BT=turn)
    padded = [torch.nn.functional.pad(x, (0, columns), value=0) for x in three]
    turns = torch.nn.functional.pad(turn, (0, columns), value=-1)
    found = gae(*padded, bootstrap, **named, turn_BT=turns)
    assert torch.equal(found[:, :-columns], expected)
    assert not found[:, -columns:].any()


@light
@given(episodes())
def test_gae_one_token_a_turn_is_the_same_by_turn_and_by_token(case):
    *case, _ = case
    mask = case[2]
    turn = torch.where(mask, mask.long().cumsum(1) - 1, -1)
    named = {"gamma": GAMMA, "gae_lambda": LAMBDA}
    assert torch.equal(gae(*case, **named, turn_BT=turn), gae(*case, **named))


def test_gae_changes_no_argument():
    reward, value, mask = rows([0, 1]), rows([0.1, 0.2]), rows([1, 1])
    copies = [x.clone() for x in (reward, value, mask)]
    gae(reward, value, mask, torch.zeros(1), gamma=GAMMA, gae_lambda=LAMBDA)
    assert all(torch.equal(a, b) for a, b in zip((reward, value, mask), copies, strict=True))


# Refusals


def test_gae_nan_reward_is_refused():
    """REW-10: a naive recursion would spread it to every earlier token."""
    reward = rows([0, 0, NAN, 0, 1])
    value, mask = torch.zeros_like(reward), torch.ones_like(reward)
    naive = plain_gae(reward, value, mask, torch.zeros(1), gamma=GAMMA, gae_lambda=LAMBDA)
    assert torch.isnan(naive).tolist() == [[True, True, True, False, False]]
    same(naive[:, 3:], rows([0.9405, 1.0]))
    with pytest.raises(ValueError, match=r"reward_BT .* not finite"):
        gae(reward, value, mask, torch.zeros(1), gamma=GAMMA, gae_lambda=LAMBDA)


@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_gae_value_or_bootstrap_that_is_not_finite_is_refused(number):
    fine, mask = rows([0.0, 1.0]), rows([1, 1])
    named = {"gamma": GAMMA, "gae_lambda": LAMBDA}
    with pytest.raises(ValueError, match=r"value_BT .* not finite"):
        gae(fine, rows([number, 0]), mask, torch.zeros(1), **named)
    with pytest.raises(ValueError, match=r"bootstrap_B .* finite"):
        gae(fine, fine, mask, torch.tensor([number]), **named)


def test_gae_other_shape_is_refused():
    """Law 6: mask, rewards and values have one length."""
    with pytest.raises(ValueError, match=r"value_BT has shape \(1, 3\), expected \(1, 2\)"):
        gae(rows([0, 1]), rows([0, 1, 2]), rows([1, 1]), torch.zeros(1),
            gamma=GAMMA, gae_lambda=LAMBDA)  # fmt: skip


# Whitening


def check_whiten_over_actions_only(whiten: Callable[..., Tensor]) -> None:
    """Law 24: tool tokens and padding count neither in the mean nor in the deviation."""
    # action advantages 1 and 3: mean 2, deviation sqrt(2) (n - 1): -+ 1/sqrt(2)
    half = 1 / 2**0.5
    for filler in (0.0, 100.0, NAN):
        found = whiten(rows([1, filler, 3, filler]), rows([1, 0, 1, 0]))
        same(found, rows([-half, 0, half, 0]))


def check_whiten_one_or_equal(whiten: Callable[..., Tensor]) -> None:
    """PPO-12: one advantage stays as it is, equal ones become 0."""
    alone = torch.zeros(1, 5)
    alone[0, 2] = 0.7
    assert torch.equal(whiten(alone, alone > 0), alone)
    for number in (0.7, -0.8, 13.7, 0.1):
        for count in (2, 3, 7, 10, 33, 1000):
            equal = torch.full((1, count), number)
            assert whiten(equal, torch.ones(1, count)).abs().max() < 1e-3, (number, count)


def divides_by_the_deviation_of_one(x, mask):
    chosen = x[mask.bool()]
    return torch.where(mask.bool(), (x - chosen.mean()) / (chosen.std() + 1e-6), 0.0)


def mean_in_float32(x, mask):
    chosen = x[mask.bool()]
    if len(chosen) < 2:
        return x
    return torch.where(mask.bool(), (x - chosen.mean()) / (chosen.std() + 1e-6), 0.0)


def over_all_tokens(x, mask):
    return torch.where(mask.bool(), (x - x.mean()) / (x.std() + 1e-6), 0.0)


def test_whiten_numbers_by_hand():
    check_whiten_over_actions_only(whiten)
    check_whiten_one_or_equal(whiten)


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (over_all_tokens, check_whiten_over_actions_only),
        (divides_by_the_deviation_of_one, check_whiten_one_or_equal),
        (mean_in_float32, check_whiten_one_or_equal),
    ],
)
def test_whiten_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        check(wrong)


@light
@given(episodes(), st.floats(-100, 100), st.floats(0.1, 100))
def test_whiten_gives_mean_zero_deviation_one_and_ignores_shift_and_scale(case, shift, scale):
    """Law 24, second half: a shift, and so the sign of an all-fail batch, leaves no trace."""
    advantage, _, mask, *_ = case
    found = whiten(advantage, mask)
    if mask.sum() > 1 and advantage[mask].std() > 0.01:
        assert_close(whiten(scale * advantage + shift, mask), found, atol=1e-3, rtol=1e-3)
        assert float(found[mask].mean()) == pytest.approx(0.0, abs=1e-6)
        assert float(found[mask].std()) == pytest.approx(1.0, abs=1e-3)
    assert not found[~mask].any()


def test_whiten_all_fail_batch_has_winners():
    """Law 24: after whitening, the least bad of three failures looks like a success."""
    assert whiten(rows([-1.0, -1.0, -0.8]), rows([1, 1, 1]))[0, 2] > 1.0


# Explained variance


def test_explained_variance_numbers_by_hand():
    mask = rows([1, 0, 1, 1])
    returns = rows([1, 99, 2, 3])
    # perfect 1; the mean 0; errors 2, 0, -2 (variance 4) against returns (variance 1): 1 - 4 = -3
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(rows([2, 0, 2, 2]), returns, mask) == 0.0
    assert explained_variance(rows([3, 0, 2, 1]), returns, mask) == pytest.approx(-3.0)
    # a constant error is not explained away by the variance: 1
    assert explained_variance(returns + 5, returns, mask) == pytest.approx(1.0)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_explained_variance_of_equal_returns_is_zero(count):
    value, returns = torch.rand(1, count), torch.full((1, count), 0.7)
    assert explained_variance(value, returns, torch.ones(1, count)) == 0.0

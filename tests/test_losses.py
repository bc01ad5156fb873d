"""The parts of the PPO loss: numbers by hand, gradients, and the wrong versions they are not.

Axes: B episode, T token position, M action tokens in one row, V vocabulary.
"""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from agentrl_lab.learner import losses

NAN, INF = float("nan"), float("inf")
light = settings(max_examples=60, deadline=None)


def row(*numbers: float, grad: bool = False) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=grad)


def near(found: Tensor | float, expected: float) -> None:
    assert float(torch.as_tensor(found).detach()) == pytest.approx(expected, abs=1e-6)


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(loss, of)[0]


# Policy loss


def check_clip(policy_loss: Callable[..., Tensor]) -> None:
    """Both sides of the clip, with both signs of the advantage; each alone, epsilon 0.2."""
    # min(ratio*A, clip(ratio)*A):      1.5*1 -> 1.2;    0.5*1 -> 0.5;
    #                                   1.5*-1 -> -1.5;  0.5*-1 -> -0.8;   1.1*2 -> 2.2
    cases = [(1.5, 1, 1.2), (0.5, 1, 0.5), (1.5, -1, -1.5), (0.5, -1, -0.8), (1.1, 2, 2.2)]
    for ratio, advantage, gain in cases:
        logprob = row(math.log(ratio) - 2.0, grad=True)
        loss = policy_loss(logprob, row(-2.0), row(advantage), row(1), clip_ratio=0.2)
        near(loss, -gain)
        # d loss / d logprob = -ratio*A where the minimum is unclipped, exactly 0 where it is
        clipped = gain != ratio * advantage
        near(gradient(loss, logprob), 0.0 if clipped else -ratio * advantage)


def check_mask(policy_loss: Callable[..., Tensor]) -> None:
    """Laws 2, 22: the mean runs over action tokens, whatever stands between them or behind them."""
    # ratio 1: -(1 + 3) / 2 = -2
    for filler in (0.0, 5.0, -700.0):
        logprob = row(-1.0, filler, -2.0, filler, filler, grad=True)
        old, advantage = row(-1, 0, -2, 0, 0), row(1, 9, 3, 9, 9)
        loss = policy_loss(logprob, old, advantage, row(1, 0, 1, 0, 0), clip_ratio=0.2)
        near(loss, -2.0)
        assert gradient(loss, logprob).tolist() == [-0.5, 0.0, -1.5, 0.0, 0.0]


def check_masked_extremes(policy_loss: Callable[..., Tensor]) -> None:
    """PPO-28, law 26: a masked token with any log-ratio leaves loss and gradient alone."""
    for extreme in (1000.0, -1000.0, -INF, INF, NAN):
        logprob = row(extreme, 0.0, grad=True)
        loss = policy_loss(logprob, row(0, 0), row(1, 1), row(0, 1), clip_ratio=0.2)
        near(loss, -1.0)
        assert gradient(loss, logprob).tolist() == [0.0, -1.0]


POLICY_CHECKS = {"clip": check_clip, "mask": check_mask, "extremes": check_masked_extremes}


@pytest.mark.parametrize("check", POLICY_CHECKS.values(), ids=POLICY_CHECKS.keys())
def test_policy_loss_numbers_by_hand(check):
    check(losses.policy_loss)


def surrogate(logprob, old, advantage, mask, *, clip_ratio, count=None,
              pick=torch.minimum, keep=lambda mask: mask.bool(), over=None, late=False,
              sign=-1.0, back=False):  # fmt: skip
    """The clipped surrogate with switches that break it."""
    keep_M = keep(mask)
    difference = (old - logprob) if back else (logprob - old)
    ratio = (difference if late else torch.where(keep_M, difference, 0.0)).exp()
    gain = pick(ratio * advantage, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * advantage)
    total = (gain * keep_M).sum() if late else torch.where(keep_M, gain, 0.0).sum()
    return sign * total / (over(mask) if over else keep_M.sum())


def with_fault(**fault) -> Callable[..., Tensor]:
    return lambda *args, **named: surrogate(*args, **named, **fault)


WRONG_POLICY_LOSS = {
    "no_clip": (with_fault(pick=lambda plain, clipped: plain), "clip"),
    "clip_without_minimum": (with_fault(pick=lambda plain, clipped: clipped), "clip"),
    "maximum": (with_fault(pick=torch.maximum), "clip"),
    "gain_instead_of_loss": (with_fault(sign=1.0), "clip"),
    "old_over_new": (with_fault(back=True), "clip"),
    "inverted_mask": (with_fault(keep=lambda mask: ~mask.bool()), "mask"),
    "no_mask": (with_fault(keep=lambda mask: torch.ones_like(mask).bool()), "mask"),
    "mean_over_padding": (with_fault(over=lambda mask: mask.numel()), "mask"),
    "mask_after_exp": (with_fault(late=True), "extremes"),
}


@pytest.mark.parametrize(
    ("wrong", "check"), WRONG_POLICY_LOSS.values(), ids=WRONG_POLICY_LOSS.keys()
)
def test_policy_loss_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        POLICY_CHECKS[check](wrong)


def test_policy_loss_at_ratio_one_is_minus_the_mean_advantage():
    """Law 27: with whitened advantages that is 0, and the gradient is not."""
    logprob = row(-1, -2, -3, grad=True)
    loss = losses.policy_loss(logprob, logprob.detach(), row(1, 0, -1), row(1, 1, 1),
                              clip_ratio=0.15)  # fmt: skip
    near(loss, 0.0)
    assert gradient(loss, logprob).abs().max() > 0.3


# Gradients on logits: exactly 0 wherever the policy did not choose


def policy_loss_of_logits(policy_loss, logits_TV, token_T, mask_T):
    """Policy loss of one row at ratio 1: logits at t - 1 predict token t."""
    logprob_T = torch.nn.functional.pad(losses.chosen_logprob(logits_TV[:-1], token_T[1:]), (1, 0))
    return policy_loss(logprob_T, logprob_T.detach(), torch.ones(len(token_T)), mask_T,
                       clip_ratio=0.15)  # fmt: skip


def check_rows_with_gradient(policy_loss: Callable[..., Tensor]) -> None:
    """PPO-31, laws 2 and 5: prompt, tool result and padding get no gradient, actions do."""
    # places:       prompt  action  tool  action  padding
    mask_T = torch.tensor([0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0])
    logits_TV = torch.randn(12, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    token_T = torch.arange(12) % 7
    rows = gradient(policy_loss_of_logits(policy_loss, logits_TV, token_T, mask_T), logits_TV)
    predicts_action = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0]).bool()  # one to the left
    assert not rows[~predicts_action].any()
    assert rows[predicts_action].abs().amax(dim=1).min() > 0


def test_policy_loss_gradient_lies_on_rows_that_predict_actions():
    check_rows_with_gradient(losses.policy_loss)


@pytest.mark.parametrize("name", ["inverted_mask", "no_mask"])
def test_policy_loss_gradient_check_rejects(name):
    with pytest.raises(AssertionError):
        check_rows_with_gradient(WRONG_POLICY_LOSS[name][0])


# Log-probability and entropy at the temperature of the rollout


def check_logprob_is_tempered(logprob: Callable[[Tensor, float], Tensor]) -> None:
    """PPO-16: both passes use the tempered distribution."""
    # log softmax([4, 0])[0] = -log(1 + e^-4) = -0.018150;  at T = 1: -0.126928
    found = logprob(torch.tensor([[2.0, 0.0]]), 0.5)
    near(found, -0.018150)


def check_entropy_is_tempered(entropy: Callable[[Tensor, float], Tensor]) -> None:
    """PPO-17: the entropy is that of the distribution that was sampled from."""
    near(entropy(torch.tensor([[2.0, 0.0]]), 0.5), 0.090095)  # softmax([4, 0])
    near(entropy(torch.zeros(1, 5), 0.5), math.log(5))


def test_chosen_logprob_and_entropy_at_a_temperature():
    first = torch.tensor([0])
    check_logprob_is_tempered(lambda logits, t: losses.chosen_logprob(logits / t, first))
    check_entropy_is_tempered(lambda logits, t: losses.token_entropy(logits / t))
    # PPO-16: mixing the two passes gives this ratio instead of 1
    near(math.exp(-0.126928 + 0.018150), 0.896929)


def test_temperature_checks_reject():
    first = torch.tensor([0])
    with pytest.raises(AssertionError):
        check_logprob_is_tempered(lambda logits, t: losses.chosen_logprob(logits, first))
    for wrong in (
        lambda logits, t: losses.token_entropy(logits),  # 0.365334
        lambda logits, t: -losses.token_entropy(logits / t),  # sign
        lambda logits, t: -(logits / t).log_softmax(-1).mean(dim=-1),  # mean -log p
    ):
        with pytest.raises(AssertionError):
            check_entropy_is_tempered(wrong)


@light
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=6))
def test_token_entropy_lies_between_zero_and_that_of_the_uniform(logits):
    found = float(losses.token_entropy(row(*logits)))
    assert -1e-12 <= found <= math.log(len(logits)) + 1e-12


def test_mean_entropy_leaves_padding_out():
    """PPO-19, law 3: filler on padding changes nothing, and nothing is negative."""
    # (0.5 + 0.7) / 2 = 0.6
    for filler in (1.0, -1.0, 1e9, NAN):
        for padding in (0, 3, 7):
            entropy = row(0.5, 0.7, *[filler] * padding)
            near(losses.masked_mean(entropy, row(1, 1, *[0] * padding)), 0.6)


def entropy_step(sign: float) -> tuple[float, Tensor, Tensor]:
    """One SGD step on a toy table policy; the second row of logits is masked."""
    table = torch.tensor([[2.0, 0.0], [2.0, 0.0]], requires_grad=True)
    mask, zeros = torch.tensor([1, 0]), torch.zeros(2)
    logprob = losses.chosen_logprob(table, torch.tensor([0, 0]))
    loss = losses.policy_loss(logprob, logprob.detach(), zeros, mask, clip_ratio=0.15)
    loss = loss + sign * 0.01 * losses.masked_mean(losses.token_entropy(table), mask)
    moved = table.detach() - gradient(loss, table)
    return float(loss.detach()), moved, losses.token_entropy(moved)


def check_entropy_bonus(sign: float) -> None:
    """PPO-20: the bonus raises the entropy of action tokens, and moves nothing else."""
    loss, moved, entropy = entropy_step(sign)
    near(loss, -0.01 * 0.365334)
    assert entropy[0] > 0.365334
    assert moved[1].tolist() == [2.0, 0.0]


def test_entropy_bonus_raises_entropy():
    check_entropy_bonus(-1.0)


def test_entropy_bonus_check_rejects_the_other_sign():
    with pytest.raises(AssertionError):
        check_entropy_bonus(+1.0)


# KL


def check_kl(kl: Callable[..., Tensor]) -> None:
    """PPO-22: a policy that moved has a KL above 0."""
    # e^0.3-1-0.3 = 0.049859;  e^-0.3-1+0.3 = 0.040818;  0;  mean 0.030226.  k1: 0
    found = kl(row(-1.0, -1.3, -2.0), row(-1.3, -1.0, -2.0), row(1, 1, 1))
    near(found, 0.030226)
    assert found > 0.02  # the stop rule at 0.02 fires


def check_kl_mask(kl: Callable[..., Tensor]) -> None:
    """Law 3: tool tokens have no share in the KL."""
    for filler in (0.0, 3.0, -INF, NAN):
        near(kl(row(0.3, filler), row(0.0, 0.0), row(1, 0)), 0.049859)


def test_kl_k3_numbers_by_hand():
    check_kl(losses.kl_k3)
    check_kl_mask(losses.kl_k3)


def k1(logprob, old, mask):
    return losses.masked_mean(old - logprob, mask)


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (k1, check_kl),
        (lambda new, old, mask: losses.kl_k3(old, new, mask) - 1e-3, check_kl),
        (lambda new, old, mask: losses.kl_k3(new, old, torch.ones_like(mask)), check_kl_mask),
        (lambda new, old, mask: losses.kl_k3(new, old, mask) / 2, check_kl_mask),
    ],
    ids=["k1", "shifted", "no_mask", "mean_over_padding"],
)
def test_kl_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        check(wrong)


@light
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_kl_k3_is_never_negative(differences):
    zeros, ones = row(*[0] * len(differences)), row(*[1] * len(differences))
    assert float(losses.kl_k3(row(*differences), zeros, ones)) >= -1e-15


def test_kl_k3_of_a_tiny_move_is_not_lost_in_float32():
    # d = 1e-3: d^2/2 = 5e-7; exp(d) - 1 in float32 alone is off by up to 6e-8
    tiny = torch.full((1,), 1e-3)
    found = float(losses.kl_k3(tiny, torch.zeros(1), torch.ones(1)))
    assert found == pytest.approx(5.0017e-7, rel=1e-3)


def test_kl_k3_mean_under_the_old_policy_is_the_kl():
    # old (0.5, 0.5), new (0.8, 0.2): KL(old || new) = 0.5 log(0.5/0.8) + 0.5 log(0.5/0.2)
    new, old = row(0.8, 0.2).log(), row(0.5, 0.5).log()
    near(losses.kl_k3(new, old, row(1, 1)), 0.223144)


# Clip fraction


def check_clip_fraction(clip_fraction: Callable[..., Tensor]) -> None:
    """PPO-26: effectively clipped means that the gradient is 0; masked tokens do not count."""
    # ratio, A: (1.5,-1) pulled back; (0.5,-1) clipped; (1.5,1) clipped; (0.5,1) pulled back: 2/4
    logprob = row(1.5, 0.5, 1.5, 0.5, 3.0).log().requires_grad_()
    advantage, mask = row(-1, -1, 1, 1, 1), row(1, 1, 1, 1, 0)
    zeros = row(0, 0, 0, 0, 0)
    near(clip_fraction(logprob, zeros, advantage, mask, clip_ratio=0.1), 0.5)
    for place, clipped in enumerate((0.0, 1.0, 1.0, 0.0)):
        alone = row(*(float(place == other) for other in range(5)))
        near(clip_fraction(logprob, zeros, advantage, alone, clip_ratio=0.1), clipped)
    # the same by the gradient itself
    loss = losses.policy_loss(logprob, torch.zeros(5), advantage, mask, clip_ratio=0.1)
    assert (gradient(loss, logprob)[:4] == 0).double().mean() == 0.5


def outside(logprob, old, advantage, mask, *, clip_ratio):
    far = ((logprob - old).exp() - 1).abs() > clip_ratio
    return losses.masked_mean(far.double(), mask)


def clipped_but_all_count(logprob, old, advantage, mask, *, clip_ratio):
    found = losses.clip_fraction(logprob, old, advantage, mask, clip_ratio=clip_ratio)
    return found * mask.sum() / mask.numel()


def test_clip_fraction_numbers_by_hand():
    check_clip_fraction(losses.clip_fraction)


@pytest.mark.parametrize("wrong", [outside, clipped_but_all_count])
def test_clip_fraction_check_rejects(wrong):
    with pytest.raises(AssertionError):
        check_clip_fraction(wrong)


# Value loss


def check_value_mask(value_loss: Callable[..., Tensor]) -> None:
    """PPO-35, law 3: tool tokens and padding have no value error, and no gradient."""
    # ((0.5-1)^2 + 0) / 2 = 0.125;  d/dV0 = 2*(0.5-1)/2 = -0.5
    for value_there, target_there in ((9.0, 0.0), (NAN, 0.0), (9.0, NAN), (INF, INF)):
        value = row(0.5, value_there, 0.1, grad=True)
        loss = value_loss(value, row(0, 0, 0), row(1, target_there, 0.1), row(1, 0, 1))
        near(loss, 0.125)
        assert gradient(loss, value).tolist() == [-0.5, 0.0, 0.0]


def check_value_clip(value_loss: Callable[..., Tensor]) -> None:
    """PPO-27: the larger of the plain and the clipped error, from the value of the rollout."""
    # (V_old, V_new, R) = (0, 1, 1): V_clip 0.2, max(0, 0.64);  (0.5, 0.9, 0.4): V_clip 0.7,
    # max(0.25, 0.09);  (0, 0.1, 1): V_clip 0.1, 0.81
    for old, new, target, expected in ((0, 1, 1, 0.64), (0.5, 0.9, 0.4, 0.25), (0, 0.1, 1, 0.81)):
        near(value_loss(row(new), row(old), row(target), row(1), value_clip=0.2), expected)


def test_value_loss_numbers_by_hand():
    check_value_mask(losses.value_loss)
    check_value_clip(losses.value_loss)
    # 0 switches the clip off: (1-1)^2
    near(losses.value_loss(row(1), row(0), row(1), row(1), value_clip=0.0), 0.0)


def squared(pick=torch.maximum, fresh=False):
    def value_loss(value, old, target, mask, *, value_clip=0.0):
        base = value.detach() if fresh else old
        clipped = base + (value - base).clamp(-value_clip, value_clip)
        error = pick((value - target).square(), (clipped - target).square())
        return losses.masked_mean(error if value_clip else (value - target).square(), mask)

    return value_loss


WRONG_VALUE_LOSS = {
    "no_mask": (
        lambda v, o, t, m: losses.value_loss(v, o, t, torch.ones_like(m)),
        check_value_mask,
    ),
    "mean_over_padding": (
        lambda v, o, t, m: losses.value_loss(v, o, t, m, count=3),
        check_value_mask,
    ),
    "mask_after_the_square": (squared(), check_value_mask),
    "minimum": (squared(pick=torch.minimum), check_value_clip),
    "clip_around_the_fresh_value": (squared(fresh=True), check_value_clip),
}


@pytest.mark.parametrize(
    ("wrong", "check"), WRONG_VALUE_LOSS.values(), ids=WRONG_VALUE_LOSS.keys()
)
def test_value_loss_check_rejects(wrong, check):
    with pytest.raises(AssertionError):
        check(wrong)


# Means over micro-batches


Mean = Callable[[list[Tensor], list[Tensor]], Tensor]


def token_mean(parts: list[Tensor], masks: list[Tensor]) -> Tensor:
    count = int(sum(mask.sum() for mask in masks))
    return sum(losses.masked_mean(x, mask, count) for x, mask in zip(parts, masks, strict=True))


def mean_of_means(parts, masks):
    return sum(losses.masked_mean(*pair) for pair in zip(parts, masks, strict=True)) / len(parts)


def check_token_mean(mean: Mean) -> None:
    """PPO-30, law 23: the split into micro-batches has no say in the mean."""
    # (2*0.5 + 6*0.1) / 8 = 0.2; the mean of means is (0.5 + 0.1) / 2 = 0.3
    parts = [row(0.5, 0.5, 7.0), row(*[0.1] * 6)]
    near(mean(parts, [row(1, 1, 0), row(*[1] * 6)]), 0.2)


def test_masked_mean_over_micro_batches_is_the_token_mean():
    check_token_mean(token_mean)


def test_token_mean_check_rejects_the_mean_of_means():
    with pytest.raises(AssertionError):
        check_token_mean(mean_of_means)


@light
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=12), st.data())
def test_every_part_of_the_loss_adds_up_over_any_split(numbers, data):
    cut = data.draw(st.integers(1, len(numbers) - 1))
    new, n = row(*numbers), len(numbers)
    old, advantage, mask = new.flip(0), new.sin(), row(*(float(i % 3 != 1) for i in range(n)))
    count = int(mask.sum())

    def parts(of: Callable[..., Tensor]) -> Tensor:
        return sum(of(slice(a, b)) for a, b in ((0, cut), (cut, n)))

    def policy(s: slice, count: int | None = count) -> Tensor:
        return losses.policy_loss(new[s], old[s], advantage[s], mask[s],
                                  clip_ratio=0.2, count=count)  # fmt: skip

    def value(s: slice, count: int | None = count) -> Tensor:
        return losses.value_loss(new[s], old[s], advantage[s], mask[s],
                                 value_clip=0.1, count=count)  # fmt: skip

    def kl(s: slice, count: int | None = count) -> Tensor:
        return losses.kl_k3(new[s], old[s], mask[s], count)

    for of in (policy, value, kl):
        assert_close(parts(of), of(slice(0, n), None))


@light
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.integers(1, 5))
def test_padding_never_changes_a_loss(numbers, columns):
    """Law 22 for every part at once."""
    new = row(*numbers)
    old, advantage, mask = new.flip(0), new.cos(), torch.ones_like(new)

    def pad(x: Tensor, filler: float) -> Tensor:
        return torch.nn.functional.pad(x, (0, columns), value=filler)

    long = (pad(new, 88.0), pad(old, -3.0), pad(advantage, 7.0), pad(mask, 0.0))
    short = (new, old, advantage, mask)
    for of in (
        lambda n, o, a, m: losses.policy_loss(n, o, a, m, clip_ratio=0.2),
        lambda n, o, a, m: losses.value_loss(n, o, a, m),
        lambda n, o, a, m: losses.kl_k3(n, o, m),
        lambda n, o, a, m: losses.clip_fraction(n, o, a, m, clip_ratio=0.2),
    ):
        assert_close(of(*long), of(*short))

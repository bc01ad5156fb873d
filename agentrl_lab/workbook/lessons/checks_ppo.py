"""Checks of the exercises of notebook 04; each names the usual mistake."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from agentrl_lab.learner import losses
from agentrl_lab.learner.trajectories import Batch
from agentrl_lab.workbook.checks import Verdict, Wrong, final, judge, number, report, short, unfit
from agentrl_lab.workbook.lessons.breakage import SWITCHES
from agentrl_lab.workbook.lessons.toy_desk import TEMPERATURE, Bigram, Recipe, fixed, padded, update

__all__ = ["check_clipped_loss", "check_gae", "check_update", "final", "judge", "report"]

# 4.1: GAE over one row


def slow_gae(
    rewards: Sequence[float], values: Sequence[float], is_action: Sequence[int], bootstrap: float,
    *, gamma: float, gae_lambda: float, skip: bool = True, decays: bool = False,
) -> list[float]:  # fmt: skip
    """GAE as a loop over one row; `skip` and `decays` break it."""
    found, next_value, next_advantage = [0.0] * len(rewards), bootstrap, 0.0
    for t in reversed(range(len(rewards))):
        if skip and not is_action[t]:
            next_advantage *= gamma * gae_lambda if decays else 1.0
            continue
        delta = rewards[t] + gamma * next_value - values[t]
        next_advantage = delta + gamma * gae_lambda * next_advantage
        next_value, found[t] = values[t], next_advantage * bool(is_action[t])
    return found


def check_gae(my_gae: Callable[..., Sequence[float]]) -> Verdict:
    """Exercise 4.1: my_gae(rewards, values, is_action, bootstrap, *, gamma, gae_lambda) -> list."""
    row = ([0.0, 1.0, 9.0, 9.0, 0.5, 1.0], [0.2, 0.4, 7.0, 7.0, 0.1, 0.6], [1, 1, 0, 0, 1, 1])
    plain = ([0.0, 0.0, 1.0], [0.2, 0.4, 0.6], [1, 1, 1])
    cut = ([9.0, 0.0, 1.0, 9.0], [7.0, 0.2, 0.4, 7.0], [0, 1, 1, 0])
    one = ([1.0], [0.4], [1])
    how = {"gamma": 0.9, "gae_lambda": 0.5}
    for case, bootstrap, name in ((plain, 0.0, "three actions"), (plain, 0.8, "a truncated row"),
                                  (row, 0.0, "two tool tokens in the middle"),
                                  (cut, 0.8, "a row cut after a tool token"),
                                  (one, 0.8, "a row of one action")):  # fmt: skip
        _compare(_numbers(my_gae(*map(list, case), bootstrap, **how), case), case, bootstrap, how,
                 name)  # fmt: skip
    for other in ({"gamma": 0.5, "gae_lambda": 0.5}, {"gamma": 0.9, "gae_lambda": 0.0}):
        got = _numbers(my_gae(*map(list, plain), 0.8, **other), plain)
        if not _near(got, slow_gae(*plain, 0.8, **other)):
            raise Wrong(f"right for {how}, wrong for {other}: use the arguments")
    return Verdict(True, "tool tokens are jumped over, and a cut episode bootstraps")


def _numbers(got: Any, case: Any) -> list[float]:
    found = list(got) if isinstance(got, Iterable) and not isinstance(got, str) else []
    if len(found) != len(case[0]):
        raise unfit(f"one number per token ({len(case[0])} of them)", got)
    return [number(one, "one number per token") for one in found]


def _compare(got: list[float], case: Any, bootstrap: float, how: dict, name: str) -> None:
    rewards, values, mask = case
    zero_at_tools = [x * m for x, m in zip(got, mask, strict=True)]
    wanted = slow_gae(*case, bootstrap, **how)
    mistakes = {
        "the value after the last action is `bootstrap`, not 0": slow_gae(*case, 0.0, **how),
        "tool tokens take part: skip them, their value and reward as well": slow_gae(
            *case, bootstrap, **how, skip=False
        ),
        "the advantage decays on tool tokens: they are no steps": slow_gae(
            *case, bootstrap, **how, decays=True
        ),
        "lambda is missing: delta + gamma * lambda * next advantage": slow_gae(
            *case, bootstrap, gamma=how["gamma"], gae_lambda=1.0
        ),
        "gamma is missing in the decay: it is gamma * lambda": _decay_of_lambda(
            *case, bootstrap, **how
        ),
        "that is delta alone: the next advantage is missing": slow_gae(
            *case, bootstrap, gamma=how["gamma"], gae_lambda=0.0
        ),
        "the value is never subtracted: that is a return, not an advantage": slow_gae(
            rewards, [0.0] * len(values), mask, bootstrap, gamma=how["gamma"], gae_lambda=1.0
        ),
    }
    if _near(got, wanted):
        return
    if _near(zero_at_tools, wanted):
        raise Wrong("right on actions; on tool tokens the advantage must be 0")
    for mistake, numbers in mistakes.items():
        if _near(zero_at_tools, numbers):
            raise Wrong(mistake)
    raise Wrong(f"for {name} it gives {_short(got)}, expected {_short(wanted)}")


def _decay_of_lambda(
    rewards: Sequence[float], values: Sequence[float], is_action: Sequence[int], bootstrap: float,
    *, gamma: float, gae_lambda: float,
) -> list[float]:  # fmt: skip
    found, next_value, later = [0.0] * len(rewards), bootstrap, 0.0
    for t in (t for t in reversed(range(len(rewards))) if is_action[t]):
        later = rewards[t] + gamma * next_value - values[t] + gae_lambda * later
        next_value, found[t] = values[t], later
    return found


def _near(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(math.isclose(x, y, abs_tol=1e-5) for x, y in zip(a, b, strict=True))


def _short(numbers: Sequence[float]) -> list[float]:
    return [round(number, 4) for number in numbers]


# 4.2: the clipped loss


def check_clipped_loss(my_loss: Callable[..., Tensor]) -> Verdict:
    """Exercise 4.2: my_loss(logprob, logprob_old, advantage, mask, clip_ratio) -> scalar tensor."""
    ratio = torch.tensor([1.7, 0.5, 1.5, 0.6, 1.05, 4.0, 3.0])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0, 2.0, 5.0, 5.0])
    mask, old = torch.tensor([1, 1, 1, 1, 1, 0, 0]).bool(), torch.linspace(-3, -1, 7)
    new = (old + ratio.log()).requires_grad_()
    got, right = _scalar(my_loss(new, old, advantage, mask, 0.2)), losses.policy_loss
    clipped, wanted = ratio.clamp(0.8, 1.2), right(new, old, advantage, mask, clip_ratio=0.2)
    gain = torch.min(ratio * advantage, clipped * advantage)
    back = torch.min(advantage / ratio, (1 / ratio).clamp(0.8, 1.2) * advantage)
    mistakes = {
        "right size, wrong sign: a loss is minimised": gain[mask].mean(),
        "the clip is missing": -(ratio * advantage)[mask].mean(),
        "only the clipped term: take the smaller of the two": -(clipped * advantage)[mask].mean(),
        "that is the larger of the two: take the smaller": -torch.max(
            ratio * advantage, clipped * advantage)[mask].mean(),
        "the mean divides by all tokens: divide by the action tokens": -gain[mask].sum() / 7,
        "the mask is not used": -gain.mean(),
        "old over new: the ratio is exp(logprob - logprob_old)": -back[mask].mean(),
        "a sum, not a mean": -gain[mask].sum(),
        "the ratio is exp of the difference, not the difference": -torch.min(
            ratio.log() * advantage, ratio.log().clamp(0.8, 1.2) * advantage)[mask].mean(),
    }  # fmt: skip
    _named(got.detach(), wanted.detach(), mistakes)
    if not got.requires_grad:
        raise Wrong("right number, but no gradient flows: do not detach logprob")
    if not torch.allclose(*(torch.autograd.grad(x, new)[0] for x in (wanted, got)), atol=1e-6):
        raise Wrong("right number, wrong gradient: some part of the ratio is detached")
    narrow = right(new, old, advantage, mask, clip_ratio=0.1)
    if not torch.isclose(_scalar(my_loss(new, old, advantage, mask, 0.1)), narrow, atol=1e-5):
        raise Wrong("right for clip_ratio 0.2, wrong for 0.1: use the argument")
    return Verdict(True, "clipped where it pays to go further, and only there")


def _scalar(got: Any) -> Tensor:
    if not isinstance(got, Tensor) or got.dim():
        raise unfit("one number as a tensor", got)
    return got.float()  # other types do not compare


def _named(got: Tensor, wanted: Tensor, mistakes: dict[str, Tensor]) -> None:
    if torch.isclose(got, wanted, atol=1e-5):
        return
    for mistake, wrong in mistakes.items():
        if torch.isclose(got, wrong, atol=1e-5):
            raise Wrong(mistake)
    raise Wrong(f"it gives {float(got):.4f}, expected {float(wanted):.4f}")


# 4.3: the printed update

Update = Callable[..., dict[str, float]]


def check_update(my_update: Update) -> Verdict:
    """Exercise 4.3: my_update(model, optimizer, batch, epochs=2) -> {"kl": ..., "entropy": ...}."""
    try:
        _probe(my_update)
    except RuntimeError as error:
        if "backward through the graph" not in str(error) and "inplace" not in str(error):
            raise
        raise Wrong("logprob_old keeps its graph: score it without gradient, once") from error
    return Verdict(True, "all six faults are mended: it moves as the package's update does")


def _probe(my_update: Update) -> None:
    """One fault after the other, by what it does whatever else is wrong."""
    model, batch = fixed()
    moved, said, leaves_none = _moves(my_update, model, batch, epochs=1)
    against, *_ = _moves(my_update, model, _with(batch, reward_BT=-batch.reward_BT), epochs=1)
    if torch.allclose(moved["output"], against["output"], atol=1e-6):
        raise Wrong("the policy gradient of the first epoch is 0: logprob_old keeps its graph")
    if not moved["value_head"].any():
        raise Wrong("the value head does not move: its prediction is made without gradient")
    if not _uses_the_value(my_update, moved):
        raise Wrong("the advantage never uses the value: it must be GAE, not the return")
    takes_all = not _same(_moves(my_update, model, batch, epochs=1, left_over=1.0)[0], moved)
    if takes_all and not leaves_none:
        raise Wrong("gradients are never zeroed: what was left from before moves the weights")
    wide, said_wide, _ = _moves(my_update, model, padded(batch), epochs=1)
    if not _same(wide, moved):
        raise Wrong("five columns of padding change the step: some mean runs over padding")
    if not math.isclose(said["entropy"], said_wide["entropy"], abs_tol=1e-5):
        raise Wrong("five columns of padding change the entropy it reports: mask it")
    _against_the_recipe(my_update)


def _against_the_recipe(my_update: Update) -> None:
    """Two epochs must end where the right recipe ends; if not, a switch may explain it."""
    model, batch = fixed()
    (moved, said, _), (wanted, right, _) = _moves(my_update, model, batch), _right(Recipe())
    if not _same(moved, wanted):
        for switch in SWITCHES:
            if _same(moved, _right(switch.recipe)[0]):
                raise Wrong(f"it moves as with the fault '{switch.name}': {switch.says}")
        raise Wrong(f"after two epochs the weights differ from the right ones by up to "
                    f"{max(float((moved[n] - wanted[n]).abs().max()) for n in moved):.4f}: is GAE "
                    "per turn, whitened over action tokens, and computed once?")  # fmt: skip
    for name, lawful in right.items():
        if not math.isclose(said[name], lawful, abs_tol=1e-4):
            raise Wrong(f"{name} is {said[name]:.4f}, over action tokens it is {lawful:.4f}")


def _moves(
    my_update: Update, model: Bigram, batch: Batch, epochs: int = 2, left_over: float = 0.0
) -> tuple[dict[str, Tensor], dict[str, float], bool]:
    """How far a copy of the model moves, what the update returns, whether no gradient is left."""
    copy = Bigram()
    copy.load_state_dict(model.state_dict())
    if left_over:
        for weights in copy.parameters():
            weights.grad = torch.full_like(weights, left_over)
    said = my_update(copy, torch.optim.SGD(copy.parameters(), lr=0.3), batch, epochs)
    if not isinstance(said, dict) or not said.keys() >= {"kl", "entropy"}:
        raise Wrong(f'return {{"kl": ..., "entropy": ...}}, got {short(said)}')
    said = {name: number(said[name], name) for name in ("kl", "entropy")}
    before = model.state_dict()
    leaves_none = all(p.grad is None or not p.grad.any() for p in copy.parameters())
    return {n: x - before[n] for n, x in copy.state_dict().items()}, said, leaves_none


def _right(recipe: Recipe) -> tuple[dict[str, Tensor], dict[str, float], bool]:
    """The same for a recipe."""

    def by_recipe(model: Bigram, optimizer: Any, batch: Batch, epochs: int) -> dict[str, float]:
        update(model, optimizer, batch, recipe, epochs - 1)
        _, logprob_BT, _ = model.score(batch.token_BT, TEMPERATURE)  # as the last epoch meets it
        kl = losses.masked_mean(batch.logprob_old_BT - logprob_BT, batch.action_mask_BT)
        entropy = update(model, optimizer, batch, recipe, 1).entropy
        return {"kl": float(kl.detach()), "entropy": float(entropy.detach())}

    return _moves(by_recipe, *fixed())


def _uses_the_value(my_update: Update, moved: dict[str, Tensor]) -> bool:
    """Whether another critic, whose values are stored as well, changes how the policy moves."""
    model, batch = fixed()
    with torch.no_grad():
        model.value_head.mul_(-2.0)
        _, _, value_BT = model.score(batch.token_BT, TEMPERATURE)
    other, *_ = _moves(my_update, model, _with(batch, value_old_BT=value_BT), epochs=1)
    return not torch.allclose(other["output"], moved["output"], atol=1e-6)


def _with(batch: Batch, **changes: Tensor) -> Batch:
    return dataclasses.replace(batch, **changes)


def _same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)

"""Faults to switch on: each breaks one law of a policy update, and one number tells.

Every switch is data: which piece of a `Recipe` it replaces by what, which law that breaks, which of
our tests catches it, and what a reader of curves would see. Wrong on purpose, all of it.

Axes: B episode, T token position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from agentrl_lab.learner.advantages import gae, whiten
from agentrl_lab.learner.trajectories import Batch
from agentrl_lab.workbook.lessons.toy_desk import END, Bigram, Parts, Recipe, fixed, padded, parts

Measure = Callable[[Recipe], float]


@dataclass(frozen=True)
class Switch:
    """One fault."""

    name: str
    law: int
    """Number in the list of laws: docs of tests/test_ppo.py."""
    says: str
    """The law, in short."""
    replaced: dict[str, Any] = field(repr=False)
    """Piece of the recipe -> what stands in its place."""
    test: str
    """File and test that catch it."""
    number: str
    """What is measured."""
    measure: Measure = field(repr=False)
    lawful: float | None
    """What the number must be; None: anything but 0."""
    sees: str
    """What the curves tell."""

    @property
    def recipe(self) -> Recipe:
        return dataclasses.replace(Recipe(), **self.replaced)

    def holds(self, number: float) -> bool:
        """Whether a number obeys the law."""
        return abs(number) > 1e-4 if self.lawful is None else abs(number - self.lawful) < 1e-5


# What is broken


def mask_all(batch: Batch) -> Batch:
    """Everything after the prompt counts as the policy's."""
    place_T = torch.arange(batch.token_BT.shape[1])
    mask_BT = (place_T > 0) & (place_T < batch.length_B[:, None])
    return dataclasses.replace(batch, action_mask_BT=mask_BT)


def mask_without_end(batch: Batch) -> Batch:
    """As if the end token were padding, and the mask made from ids."""
    return dataclasses.replace(batch, action_mask_BT=batch.action_mask_BT & (batch.token_BT != END))


def reward_at_the_end(batch: Batch) -> Batch:
    """The episode's reward on its very last token, which the desk wrote."""
    reward_BT = torch.zeros_like(batch.reward_BT)
    reward_BT[torch.arange(len(reward_BT)), batch.length_B - 1] = batch.reward_BT.sum(dim=1)
    return dataclasses.replace(batch, reward_BT=reward_BT)


def always_bootstrap(batch: Batch) -> Batch:
    """The critic's word is added after a true end."""
    last_B = batch.length_B[:, None] - 1
    return dataclasses.replace(batch, bootstrap_B=batch.value_old_BT.gather(1, last_B)[:, 0])


def gae_everywhere(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, *rest: Any, **how: Any):
    """Tool tokens take their part in the recursion, value and decay included."""
    real_BT = mask_BT.bool().flip(1).cumsum(1).flip(1) > 0  # up to the last action
    place_BT = torch.arange(mask_BT.shape[1]).expand_as(mask_BT)
    how["turn_BT"] = None if how.get("turn_BT") is None else place_BT
    return gae(reward_BT, value_BT, real_BT, *rest, **how) * mask_BT


def whiten_rows(advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Each episode is compared with itself."""
    pairs = zip(advantage_BT.split(1), mask_BT.split(1), strict=True)
    return torch.cat([whiten(*pair) for pair in pairs])


# What is measured


def of_parts(look: Callable[[Bigram, Batch, Parts], float]) -> Measure:
    """A number of one forward pass."""

    def measure(recipe: Recipe) -> float:
        model, batch = fixed()
        return look(model, batch, parts(model, batch, recipe))

    return measure


def norm(of: Tensor, *by: Tensor) -> Tensor:
    """Norm of a gradient; 0 where there is none."""
    found = torch.autograd.grad(of, by, allow_unused=True) if of.requires_grad else [None]
    return torch.cat([g.flatten() for g in found if g is not None] or [torch.zeros(1)]).norm()


def on_tool_tokens(model: Bigram, batch: Batch, seen: Parts) -> float:
    """The policy's pull on what the desk writes."""
    (found_BTV,) = torch.autograd.grad(seen.policy_loss, seen.logits_BTV)
    return float(found_BTV[~batch.action_mask_BT].norm())


def by_padding(part: str) -> Measure:
    """How far a part of the loss moves when five columns of padding are added."""

    def measure(recipe: Recipe) -> float:
        model, batch = fixed()
        pair = [getattr(parts(model, b, recipe), part) for b in (batch, padded(batch))]
        return float((pair[1] - pair[0]).abs().detach())

    return measure


def credit(recipe: Recipe) -> float:
    """Distance of GAE on a row with tool tokens from GAE on the row without them."""
    rows = [[0.0, 9, 9, 1]], [[0.5, 7, 7, 0.25]], [[1, 0, 0, 1]]
    reward, value, mask = map(torch.tensor, rows)
    end, how, keep = torch.zeros(1), {"gamma": 0.5, "gae_lambda": 0.5}, mask[0].bool()
    short = gae(reward[:, keep], value[:, keep], mask[:, keep], end, **how)
    return float((recipe.gae(reward, value, mask, end, **how)[:, keep] - short).abs().max())


def after_the_end(recipe: Recipe) -> float:
    """What is added to reward - value at the last action token; mean over episodes."""
    model, batch = fixed()
    last_B = (batch.action_mask_BT * torch.arange(batch.token_BT.shape[1])).argmax(1, keepdim=True)
    extra_BT = parts(model, batch, recipe).advantage_BT - batch.reward_BT + batch.value_old_BT
    return float(extra_BT.gather(1, last_B).abs().mean())


def gap(recipe: Recipe) -> float:
    """Whitened advantage of an episode that went well minus that of one that did not."""
    both_BT = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    return float(torch.sub(*recipe.whiten(both_BT, torch.ones(2, 2)).mean(dim=1)))


def second_gradient(recipe: Recipe) -> float:
    """The gradient of one batch the second time, in units of the first."""
    model, batch = fixed()
    optimizer, norms = torch.optim.SGD(model.parameters(), lr=0.0), []
    for _ in range(2):
        recipe.zero_grad(optimizer)
        parts(model, batch, recipe).loss.backward()
        norms.append(float(model.output.grad.norm()))
    return norms[1] / norms[0]


def whole_action(recipe: Recipe) -> float:
    """Weight of the outcome for the first of 40 tokens of one action (gamma 0.99)."""
    one = dataclasses.replace(fixed()[1], turn_BT=torch.zeros(1, 40))
    reward_BT, nothing, ones = torch.eye(40)[-1:], torch.zeros(1, 40), torch.ones(1, 40)
    how = {"gamma": 0.99, "gae_lambda": 1.0, "turn_BT": recipe.turns(one)}
    return float(recipe.gae(reward_BT, nothing, ones, nothing[:, 0], **how)[0, 0])


def share(name: str) -> Callable[[Recipe], float]:
    """How much of a batch's mask or reward is left where the policy wrote."""

    def measure(recipe: Recipe) -> float:
        before, after = fixed()[1], recipe.batch(fixed()[1])
        left = [(1.0 * getattr(b, name))[b.action_mask_BT].abs().sum() for b in (after, before)]
        return float(left[0] / left[1])

    return measure


SWITCHES: Sequence[Switch] = (
    Switch("mask ignored", 2, "what the desk wrote is no action", {"batch": mask_all},
           "test_losses: policy_loss_check_rejects[no_mask]",
           "gradient of the policy loss on logits of tool tokens", of_parts(on_tool_tokens), 0.0,
           "It learns, later: gradient goes into guessing what the desk will say."),
    Switch("entropy over all tokens", 3, "also entropy, KL and value loss see actions only",
           {"entropy_mask": torch.ones_like}, "test_losses: mean_entropy_leaves_padding_out",
           "change of the entropy by five columns of padding", by_padding("entropy"), 0.0,
           "Nothing. The logged entropy is that of other tokens, and no curve of success tells."),
    Switch("mask from ids", 4, "masks come from lengths, not ids", {"batch": mask_without_end},
           "test_trajectories: pack_check_rejects[mask_where_id_is_not_pad]",
           "share of the action tokens in the mask", share("action_mask_BT"), 1.0,
           "Success does not rise: the reward lies on the end of a message, and is lost with it."),
    Switch("tool tokens in GAE", 10, "the recursion jumps over tool tokens",
           {"gae": gae_everywhere},
           "test_advantages: gae_check_rejects[takes_values_of_tool_tokens]",
           "distance from GAE on the row without tool tokens", credit, 0.0,
           "It learns, later, and the value stays too low: credit fades over words of the desk."),
    Switch("reward on the last token", 12, "a reward belongs on the last policy token",
           {"batch": reward_at_the_end},
           "test_trajectories: reward_on_a_tool_token_would_be_dropped_silently",
           "share of the reward that reaches an action", share("reward_BT"), 1.0,
           "Success falls. No error: the reward is dropped, and the entropy bonus alone is left."),
    Switch("end taken for a cut", 16, "bootstrap at a cut, not at a true end",
           {"batch": always_bootstrap}, "test_advantages: gae_check_rejects[bootstraps_a_true_end]",
           "what is added after the end", after_the_end, 0.0,
           "Success looks healthy. The value climbs above 1, more than any episode pays."),
    Switch("discount per token", 17, "say what gamma counts", {"turns": lambda batch: None},
           "test_advantages: gae_check_rejects[discounts_tokens_instead_of_turns]",
           "weight of the outcome at the start of 40 tokens", whole_action, 1.0,
           "It learns: actions of three words discount little. Long ones would suffer."),
    Switch("ratio without temperature", 19, "the first ratio is exactly 1", {"temperature": 1.0},
           "test_ppo: update_first_ratio_is_one_at_the_temperature_of_the_rollout",
           "largest distance of a ratio from 1 before any step",
           of_parts(lambda model, batch, seen: float(seen.ratio_error.detach())), 0.0,
           "Success stays where it was: ratios lie outside the clip before any step is made."),
    Switch("means over padding", 22, "padding dilutes nothing", {"count": Tensor.numel},
           "test_losses: policy_loss_check_rejects[mean_over_padding]",
           "change of the value loss by five columns of padding", by_padding("value_loss"), 0.0,
           "Nothing. Every part of the loss shrinks alike, and Adam takes the scale out again."),
    Switch("gradients pile up", 23, "a gradient is the mean of one minibatch",
           {"zero_grad": lambda optimizer: None},
           "test_ppo: micro_batch_size_never_changes_the_gradient",
           "the second gradient in units of the first", second_gradient, 1.0,
           "It learns, and the value swings wide: old minibatches push on."),
    Switch("whitening per row", 24, "whiten over all action tokens together",
           {"whiten": whiten_rows},
           "test_ppo: targets_are_whitened_over_the_action_tokens_of_the_update",
           "advantage of a good episode minus that of a bad one", gap, None,
           "Success stays where it was: an episode alone is neither good nor bad."),
    Switch("critic without gradient", 25, "the value head has to be warmed up",
           {"value": Tensor.detach}, "test_ppo: minibatch_gradient_equals_the_loss_written_out",
           "gradient of the value loss on the value head",
           of_parts(lambda model, _, seen: float(norm(seen.value_loss, model.value_head))), None,
           "It learns from whitened returns alone; the value stays at 0 for ever."),
    Switch("old logprob keeps its graph", 27, "at the first step the loss is 0, its gradient not",
           {"old": lambda stored, now: now},
           "test_losses: policy_loss_at_ratio_one_is_minus_the_mean_advantage",
           "gradient of the policy loss at the first step",
           of_parts(lambda model, _, seen: float(norm(seen.policy_loss, model.output))), None,
           "Success falls. Ratio 1, KL 0, clip fraction 0: the update looks perfect."),
)  # fmt: skip

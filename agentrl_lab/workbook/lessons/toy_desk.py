"""A language model of ten words at a desk of one question: PPO on it takes a second.

The policy must look before it answers. Everything is as for the transformer: tokens, actions of
several tokens, answers of a tool between them, padding, a value head that shares weights; and the
update is made of the package's own functions. A `Recipe` names its pieces, so that one can be
replaced by a broken one.

Axes: B episode, T token position (padded), V vocabulary. Index t of a *_BT tensor is about token t.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agentrl_lab.learner import losses
from agentrl_lab.learner.advantages import gae, whiten
from agentrl_lab.learner.trajectories import Batch

WORDS = ("<pad>", "customer", "look", "yes", "no", "um", "<end>", "desk", "paid", "unpaid")
PAD, CUSTOMER, LOOK, YES, NO, UM, END, DESK, PAID, UNPAID = range(len(WORDS))
ACTION_TOKENS, TURNS, EPISODES = 3, 2, 32
TEMPERATURE, GAMMA, GAE_LAMBDA, CLIP, ENTROPY, RATE = 0.7, 0.99, 0.95, 0.15, 0.01, 0.02
HABITS = {
    CUSTOMER: {YES: 0.6, LOOK: 0.15, NO: 0.1, UM: 0.15}, LOOK: {END: 0.8, UM: 0.2},
    YES: {END: 0.8, UM: 0.2}, NO: {END: 0.8, UM: 0.2}, UM: {YES: 0.4, END: 0.4, UM: 0.2},
    PAID: {YES: 0.6, NO: 0.2, LOOK: 0.1, UM: 0.1}, UNPAID: {YES: 0.6, NO: 0.2, LOOK: 0.1, UM: 0.1},
}  # fmt: skip
"""What the untrained model writes after a word; it prefers to say yes without looking."""


class Bigram(nn.Module):
    """A language model that reads one word back, with a value head on the same hidden state."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        size, noise = len(WORDS), torch.Generator().manual_seed(seed)
        chance_VV = torch.full((size, size), 0.005)
        for word, habit in HABITS.items():
            for after, share in habit.items():
                chance_VV[word, after] = share
        hidden_VV = torch.eye(size) + 0.15 * torch.randn(size, size, generator=noise)
        self.embedding = nn.Parameter(hidden_VV)
        self.output = nn.Parameter(torch.linalg.solve(hidden_VV, chance_VV.log()))
        self.value_head = nn.Parameter(torch.zeros(size))

    def score(self, token_BT: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Tempered logits_BTV, logprob_BT and value_BT of each token, given the one before it."""
        hidden_BTV = F.pad(self.embedding[token_BT[:, :-1]], (0, 0, 1, 0))
        logits_BTV = hidden_BTV @ self.output / temperature
        logprob_BT = logits_BTV.log_softmax(-1).gather(-1, token_BT[..., None]).squeeze(-1)
        return logits_BTV, logprob_BT, hidden_BTV @ self.value_head


def collect(
    model: Bigram, rng: np.random.Generator, episodes: int = EPISODES
) -> tuple[Batch, float]:
    """Some episodes, packed, and the share of right answers.

    Log-probabilities and values are noted for *every* token, those of the desk included: a right
    update does not look at them.
    """
    with torch.no_grad():
        logits_VV = model.embedding @ model.output / TEMPERATURE
        chances = logits_VV.double().softmax(-1).cumsum(-1).numpy()
    played = [_episode(chances, rng) for _ in range(episodes)]
    batch = _padded_rows(played)
    with torch.no_grad():
        _, logprob_BT, value_BT = model.score(batch.token_BT, TEMPERATURE)
    batch = dataclasses.replace(batch, logprob_old_BT=logprob_BT, value_old_BT=value_BT)
    return batch, float((batch.reward_BT.sum(dim=1) > 0).float().mean())


Played = tuple[list[int], list[int], dict[int, float]]
"""Ids, turn of each (-1 where the policy did not write), and rewards by place."""


def _episode(chances: np.ndarray, rng: np.random.Generator) -> Played:
    """Turns until an answer; the desk's word comes after each action, also after the last."""
    paid, ids, turns, rewards = bool(rng.integers(2)), [CUSTOMER], [-1], {}
    for turn in range(TURNS):
        start = len(ids)
        while ids[-1] != END and len(ids) - start < ACTION_TOKENS:
            ids.append(int(np.searchsorted(chances[ids[-1]], rng.random() * chances[ids[-1], -1])))
        said = next((token for token in ids[start:] if token in (LOOK, YES, NO)), None)
        over = said != LOOK or turn + 1 == TURNS
        if over:
            rewards[len(ids) - 1] = 1.0 if said == (YES if paid else NO) else -0.8
        turns += [turn] * (len(ids) - start) + [-1, -1]
        ids += [DESK, PAID if paid else UNPAID]
        if over:
            break
    return ids, turns, rewards


def _padded_rows(played: Sequence[Played]) -> Batch:
    """As `pack` does, for short rows and in less time."""
    size = (len(played), max(len(ids) for ids, *_ in played))
    token_BT, turn_BT = np.full(size, PAD), np.full(size, -1)
    reward_BT, length_B = np.zeros(size, np.float32), np.array([len(ids) for ids, *_ in played])
    for row, (ids, turns, rewards) in enumerate(played):
        token_BT[row, : len(ids)], turn_BT[row, : len(ids)] = ids, turns
        for place, reward in rewards.items():
            reward_BT[row, place] = reward
    tokens, turns, rewards, lengths = map(
        torch.from_numpy, (token_BT, turn_BT, reward_BT, length_B)
    )
    zeros = torch.zeros_like(rewards)
    return Batch(tokens, lengths, turns >= 0, turns, zeros, zeros, rewards, zeros[:, 0])


def as_is(thing: Batch | Tensor) -> Batch | Tensor:
    """The same: nothing is broken."""
    return thing


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The pieces of an update. The defaults are right."""

    batch: Callable[[Batch], Batch] = as_is
    """Mask, rewards and bootstrap as they were packed."""
    turns: Callable[[Batch], Tensor | None] = lambda batch: batch.turn_BT
    """What a discount counts; None: tokens."""
    gae: Callable[..., Tensor] = gae
    whiten: Callable[[Tensor, Tensor], Tensor] = whiten
    temperature: float = TEMPERATURE
    """At which the update scores what was sampled at TEMPERATURE."""
    old: Callable[[Tensor, Tensor], Tensor] = lambda stored, now: stored
    """logprob_old, from what was stored and what the model says now."""
    value: Callable[[Tensor], Tensor] = as_is
    entropy_mask: Callable[[Tensor], Tensor] = as_is
    count: Callable[[Tensor], int] = lambda mask: int(mask.sum())
    """What every mean divides by."""
    zero_grad: Callable[[torch.optim.Optimizer], None] = lambda optimizer: optimizer.zero_grad()


@dataclass(frozen=True)
class Parts:
    """One forward pass: the parts of the loss, and what they were made of."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    ratio_error: Tensor
    """Largest distance of a ratio from 1 on action tokens."""
    logits_BTV: Tensor
    advantage_BT: Tensor
    """Not whitened."""

    @property
    def loss(self) -> Tensor:
        return self.policy_loss + 0.5 * self.value_loss - ENTROPY * self.entropy


def parts(model: Bigram, batch: Batch, recipe: Recipe) -> Parts:
    """The loss of E5 on a batch, made by a recipe."""
    return _parts(model, *_prepared(batch, recipe), recipe)


def _prepared(batch: Batch, recipe: Recipe) -> tuple[Batch, Tensor]:
    """The batch as the recipe packs it, and its advantages."""
    batch = recipe.batch(batch)
    return batch, recipe.gae(
        batch.reward_BT, batch.value_old_BT, batch.action_mask_BT, batch.bootstrap_B,
        gamma=GAMMA, gae_lambda=GAE_LAMBDA, turn_BT=recipe.turns(batch),
    )  # fmt: skip


def _parts(model: Bigram, batch: Batch, raw_BT: Tensor, recipe: Recipe) -> Parts:
    mask_BT, value_old_BT = batch.action_mask_BT, batch.value_old_BT
    logits_BTV, logprob_BT, value_BT = model.score(batch.token_BT, recipe.temperature)
    old_BT, white_BT = recipe.old(batch.logprob_old_BT, logprob_BT), recipe.whiten(raw_BT, mask_BT)
    count, seen_BT = recipe.count(mask_BT), recipe.entropy_mask(mask_BT)
    ratio_BT = losses.log_ratio(logprob_BT, old_BT, mask_BT).exp()
    error = losses.value_loss(
        recipe.value(value_BT), value_old_BT, raw_BT + value_old_BT, mask_BT, count=count
    )
    return Parts(
        losses.policy_loss(logprob_BT, old_BT, white_BT, mask_BT, clip_ratio=CLIP, count=count),
        error,
        losses.masked_mean(losses.token_entropy(logits_BTV), seen_BT, recipe.count(seen_BT)),
        (ratio_BT - 1).abs().max(), logits_BTV, raw_BT,
    )  # fmt: skip


def update(
    model: Bigram, optimizer: torch.optim.Optimizer, batch: Batch, recipe: Recipe, epochs: int = 2
) -> Parts:
    """Some epochs over one batch, a step for each; the parts of the last one."""
    prepared = _prepared(batch, recipe)
    for _ in range(epochs):
        recipe.zero_grad(optimizer)
        seen = _parts(model, *prepared, recipe)
        seen.loss.backward()
        optimizer.step()
    return seen


def train(recipe: Recipe, *, updates: int = 40, seed: int = 0) -> dict[str, list[float]]:
    """Trains a fresh model; per update the share of right answers, and the value of the start."""
    model, rng = Bigram(seed), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    curves: dict[str, list[float]] = {"success": [], "value": []}
    for _ in range(updates):
        batch, success = collect(model, rng)
        first_B = batch.action_mask_BT.int().argmax(dim=1, keepdim=True)
        curves["success"].append(success)
        curves["value"].append(float(batch.value_old_BT.gather(1, first_B).mean()))
        update(model, optimizer, batch, recipe)
    return curves


def mean_curves(recipe: Recipe, seeds: Sequence[int], updates: int) -> dict[str, np.ndarray]:
    """The curves of `train`, averaged over seeds."""
    runs = [train(recipe, updates=updates, seed=seed) for seed in seeds]
    return {name: np.mean([run[name] for run in runs], axis=0) for name in runs[0]}


def fixed() -> tuple[Bigram, Batch]:
    """A model with a value head that says something, and a batch of it."""
    model = Bigram(0)
    with torch.no_grad():
        model.value_head += torch.linspace(-0.6, 0.8, len(model.value_head))
    return model, collect(model, np.random.default_rng(0), 16)[0]


def padded(batch: Batch, columns: int = 5) -> Batch:
    """The same batch with more padding."""
    filler = {"action_mask_BT": False, "turn_BT": -1}
    fields = {name: getattr(batch, name) for name in Batch.__slots__}
    for name, x in fields.items():
        if x.dim() == 2:
            fields[name] = F.pad(x, (0, columns), value=filler.get(name, 0))
    return Batch(**fields)

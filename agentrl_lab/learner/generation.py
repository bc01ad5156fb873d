"""Tokens for a chunk of episodes: prefill, decode, sample, on one cache through the whole episode.

New tool text is prefilled, nothing is computed twice, and rows that have stopped leave the batch.
Sampling noise belongs to the episode, not to its place in the batch.

Axes: R rows at work now, Q new tokens of a row (padded), G sampled tokens of a row, N = R * G,
V vocabulary, K key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from agentrl_lab.config import SamplingConfig
from agentrl_lab.learner.decoding import LlamaDecoder
from agentrl_lab.learner.drafts import Follower, guess
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.row_cache import RowCache
from agentrl_lab.learner.tokenization import common_prefix
from agentrl_lab.learner.trajectories import Stage
from agentrl_lab.world.env import TicketEnv

PREFILL_ROWS = 16
DRAFT_ROWS = 16
DRAFT_TOKENS = 7


@dataclass
class Row:
    """One episode under way."""

    env: TicketEnv
    index: int
    noise: np.ndarray
    ids: list[int]
    cached: int = 0
    """Ids whose keys and values are in the cache."""
    action_start: int = 0
    logprobs: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    bootstrap: float = 0.0
    running: bool = True
    winnable: bool = True
    follower: Follower = field(default_factory=Follower)
    followed: int = 2
    """Ids that the follower has read."""

    def next_noise(self, count: int) -> np.ndarray:
        return self.noise[len(self.logprobs) : len(self.logprobs) + count]

    def write(self, token: int, logprob: float, value: float, entropy: float) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.values.append(value)
        self.entropies.append(entropy)


class Generation:
    """The forward passes of one chunk of episodes."""

    def __init__(self, policy: Policy, rows: list[Row]) -> None:
        self.policy, self.rows = policy, rows
        self.decoder = LlamaDecoder(policy.model) if LlamaDecoder.fits(policy) else None
        self.cache = RowCache(policy.model.config.num_hidden_layers)
        self.home = {number: number for number in range(len(rows))}
        """Which row of the cache an episode lies in."""
        self.written = Follower()
        """What actions of this chunk consist of."""

    def share_prefix(self) -> None:
        """Runs the beginning all prompts share once, for all rows."""
        prompts = [row.ids for row in self.rows]
        length = max(0, min(common_prefix(prompts), min(map(len, prompts)) - 1))
        if length:
            position = torch.arange(length)[None]
            self.cache.fit(torch.tensor([0]), 0, length)
            self.cache.place(torch.tensor([0]), position, length)
            self._forward(torch.tensor([prompts[0][:length]]), position, torch.tensor([[0]]))
            self.cache.share(len(prompts))
        for row in self.rows:
            row.cached = length

    def actions(self, active: list[int], temperature: float, limits: SamplingConfig) -> None:
        """Samples one action for each active episode."""
        rows = [self.rows[number] for number in active]
        home_R = torch.tensor([self.home[number] for number in active])
        longest = max(len(row.ids) for row in rows)
        self.cache.fit(home_R, max(row.cached for row in rows), longest + limits.action_tokens)
        self.home = {number: at for at, number in enumerate(active)}
        for row in rows:
            row.action_start = len(row.ids)
        while active:
            drafts = self._drafts(active, limits)
            hidden_RGH = self._extend(active, drafts)
            logits_RGV, value_RG = self.policy.logits(hidden_RGH), self.policy.value(hidden_RGH)
            rows, width = [self.rows[number] for number in active], hidden_RGH.shape[1]
            noise_N = np.concatenate([row.next_noise(width) for row in rows])
            token_N, logprob_N, entropy_N = sample(logits_RGV.flatten(0, 1), temperature, noise_N)
            of_token = token_N, logprob_N, value_RG, entropy_N
            numbers = [x.reshape(-1, width).tolist() for x in of_token]
            for row, draft, *lists in zip(rows, drafts, *numbers, strict=True):
                self._accept(row, draft, list(zip(*lists, strict=True)), limits)
            active = [number for number in active if self._goes_on(self.rows[number], limits)]

    def _drafts(self, active: list[int], limits: SamplingConfig) -> list[list[int]]:
        """Guesses for each episode, none while so many are at work that they would cost time."""
        if len(active) > DRAFT_ROWS:
            return [[] for _ in active]
        drafts = []
        for row in (self.rows[number] for number in active):
            row.follower.read(row.ids, start=row.followed)
            row.followed = len(row.ids)
            most = min(DRAFT_TOKENS, limits.action_tokens - (len(row.ids) - row.action_start) - 1)
            drafts.append(guess(row.ids, most, row.follower, self.written))
        return drafts

    def _accept(
        self, row: Row, draft: list[int], sampled: list[tuple], limits: SamplingConfig
    ) -> None:
        """Writes sampled tokens up to the first that the draft guessed wrong."""
        for guessed, numbers in zip([*draft, None], sampled, strict=False):
            row.write(*numbers)
            if numbers[0] != guessed or not self._goes_on(row, limits):
                break
        row.cached = len(row.ids) - 1
        if not self._goes_on(row, limits):
            self.written.read(row.ids, start=row.action_start)

    def _goes_on(self, row: Row, limits: SamplingConfig) -> bool:
        written = len(row.ids) - row.action_start
        return row.ids[-1] != self.policy.tokenizer.end_id and written < limits.action_tokens

    def _extend(self, active: list[int], drafts: list[list[int]]) -> Tensor:
        """Brings the cache up to date; hidden states [R, G, H] of the last token and the draft."""
        feeds = {
            number: _Feed(self.rows[number].cached, self.rows[number].ids, draft)
            for number, draft in zip(active, drafts, strict=True)
        }
        width = 1 + max(map(len, drafts))
        if max(len(feed.ids) - len(feed.draft) for feed in feeds.values()) > 1:
            return self._prefill(feeds, width)
        # While at least half of the cache is at work all its rows run, the others on padding: to
        # copy the keys and values of the rest out of it would cost more.
        if 2 * len(active) < len(self.home) or len(active) == len(self.home):
            return self._run(feeds, width)
        idle = _Feed(0, [], [])
        hidden_RGH = self._run({number: feeds.get(number, idle) for number in self.home}, width)
        return hidden_RGH[[self.home[number] for number in active]]

    def _prefill(self, feeds: dict[int, _Feed], width: int) -> Tensor:
        """Tool results differ in length: short ones go together, and few enough at a time for what
        a layer makes of them to stay in the processor's cache.
        """
        by_length = sorted(feeds, key=lambda number: len(feeds[number].ids))
        hidden_GH = {}
        for at in range(0, len(by_length), PREFILL_ROWS):
            part = {number: feeds[number] for number in by_length[at : at + PREFILL_ROWS]}
            hidden_GH.update(zip(part, self._run(part, width), strict=True))
        return torch.stack([hidden_GH[number] for number in feeds])

    def _run(self, feeds: dict[int, _Feed], width: int) -> Tensor:
        """Runs new tokens of some episodes; hidden states [R, G, H] where tokens are sampled."""
        spare, parts = self.cache.spare, list(feeds.values())
        longest = max(len(feed.ids) for feed in parts)
        token_RQ = torch.tensor([feed.ids + [0] * (longest - len(feed.ids)) for feed in parts])
        position_RQ = torch.tensor(
            [
                [*range(feed.start, feed.stop), *[spare] * (longest - len(feed.ids))]
                for feed in parts
            ]
        )
        home_R = torch.tensor([self.home[number] for number in feeds])
        self.cache.place(home_R, position_RQ, max(feed.stop for feed in parts))
        asked_RG = torch.tensor([feed.asked(width) for feed in parts])
        return self._forward(token_RQ, position_RQ, asked_RG)

    def _forward(self, token_RQ: Tensor, position_RQ: Tensor, asked_RG: Tensor) -> Tensor:
        key_K = torch.arange(self.cache.visible)
        mask = (key_K <= position_RQ[:, :, None])[:, None]
        position_RQ = position_RQ.clamp(max=self.cache.spare - 1)  # a model may know no spare place
        if self.decoder is not None:
            return self.decoder.hidden(
                token_RQ, position_RQ=position_RQ, asked_RG=asked_RG, mask=mask, cache=self.cache
            )
        hidden_RQH = self.policy.hidden(
            token_RQ, position_BT=position_RQ, mask=mask, cache=self.cache
        )
        return hidden_RQH[torch.arange(len(asked_RG))[:, None], asked_RG]


class _Feed:
    """What one episode gives to a forward pass: ids that are not cached yet and a draft."""

    def __init__(self, start: int, ids: list[int], draft: list[int]) -> None:
        self.start, self.draft = start, draft
        self.ids = ids[start:] + draft
        self.stop = start + len(self.ids)

    def asked(self, width: int) -> list[int]:
        """Where tokens are sampled: after the last id and after each of the draft, padded."""
        last = max(len(self.ids) - 1, 0)
        return [min(last - len(self.draft) + k, last) for k in range(width)]


def sample(
    logits_NV: Tensor, temperature: float, noise_N: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Token, its log-probability and the entropy, all of the distribution at this temperature.

    Inverse transform sampling: the first token whose cumulative probability exceeds the noise, so
    a row's token depends on its own logits and noise alone. Temperature 0 takes the likeliest token
    and reports log-probability and entropy at temperature 1.

    Args:
        logits_NV: raw logits.
        temperature: divides the logits; 0 is greedy.
        noise_N: one uniform number in [0, 1) a row.
    """
    tempered_NV = logits_NV / temperature if temperature > 0 else logits_NV
    logprob_NV = tempered_NV.log_softmax(dim=-1)
    prob_NV = logprob_NV.exp()
    if temperature > 0:
        cumulative_NV = prob_NV.cumsum(dim=-1, dtype=torch.float64)
        level_N1 = torch.tensor(noise_N, dtype=torch.float64)[:, None] * cumulative_NV[:, -1:]
        token_N = (cumulative_NV <= level_N1).sum(dim=-1).clamp(max=logits_NV.shape[1] - 1)
    else:
        token_N = logits_NV.argmax(dim=-1)
    logprob_N = logprob_NV.gather(1, token_N[:, None]).squeeze(1)
    return token_N, logprob_N, -(prob_NV * logprob_NV).sum(dim=-1)

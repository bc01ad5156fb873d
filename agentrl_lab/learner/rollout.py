"""Policy x environments -> trajectories. All episodes of a batch step together on one KV cache.

The cache lives through the whole episode: new tool text is prefilled, nothing is computed twice,
each row lies compact in it whatever its length, and rows that have finished leave the batch.
Sampling noise belongs to the episode, not to its place in the batch.

Axes: B episode in the batch, R rows at work now, Q new tokens of a row (padded), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from agentrl_lab.config import SamplingConfig
from agentrl_lab.learner.losses import token_entropy
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.tokenization import common_prefix
from agentrl_lab.learner.trajectories import Stage, Trajectory
from agentrl_lab.world.env import TicketEnv

EnvFactory = Callable[[], TicketEnv]


class RowCache(Cache):
    """Keys and values of a batch, allocated once; each row is compact from position 0 on.

    `place` says which rows and positions the next forward pass writes; padding goes to a spare
    place at the end that no query may see.
    """

    def __init__(self, num_layers: int, rows: int, length: int) -> None:
        super().__init__(layers=[_RowLayer(self, rows, length + 1) for _ in range(num_layers)])
        self.spare = length

    def place(self, rows_R: Tensor, position_RQ: Tensor, visible: int) -> None:
        """Rows to write, where (padding: `spare`), and how many positions queries may see."""
        everyone = len(rows_R) == self.layers[0].rows
        self.rows_R = slice(None) if everyone else rows_R
        self.where = (rows_R[:, None], position_RQ)
        self.visible = visible

    def keep(self, rows_R: Tensor, filled: int) -> None:
        """Drops all rows but these, now rows 0, 1, ..., of at most `filled` places."""
        for layer in self.layers:
            layer.keep(rows_R, filled)


class _RowLayer(CacheLayerMixin):
    """One layer of a RowCache, held as [B, length, heads, head_dim]: writes are contiguous."""

    def __init__(self, owner: RowCache, rows: int, length: int) -> None:
        super().__init__()
        self._owner, self.rows, self.length = owner, rows, length

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        heads, width = key_states.shape[1], key_states.shape[3]
        self.keys = key_states.new_zeros(self.rows, self.length, heads, width)
        self.values = value_states.new_zeros(self.rows, self.length, heads, width)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        owner = self._owner
        self.keys[owner.where] = key_states.transpose(1, 2)
        self.values[owner.where] = value_states.transpose(1, 2)
        keys = self.keys[owner.rows_R, : owner.visible]
        values = self.values[owner.rows_R, : owner.visible]
        return keys.transpose(1, 2), values.transpose(1, 2)

    def keep(self, rows_R: Tensor, filled: int) -> None:
        """Keeps some rows; places that were never filled stay untouched memory."""
        kept = []
        for old in (self.keys, self.values):
            new = old.new_zeros(len(rows_R), *old.shape[1:])
            new[:, :filled] = old[rows_R, :filled]
            kept.append(new)
        self.rows, (self.keys, self.values) = len(rows_R), kept

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.visible, 0


@dataclass
class _Row:
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


class Collector:
    """Plays episodes with a policy.

    Args:
        policy: used in eval mode, without gradients; its mode is left as found.
        make_env: builds one environment; a fresh one serves each episode.
        sampling: limits of an action and of an episode.
    """

    def __init__(self, policy: Policy, make_env: EnvFactory, sampling: SamplingConfig) -> None:
        self.policy, self.make_env, self.sampling = policy, make_env, sampling

    def collect(
        self, tasks: Sequence[int], *, temperature: float, seed: Sequence[int], chunk: int = 64
    ) -> list[Trajectory]:
        """One trajectory per task, in the order of the tasks.

        Args:
            tasks: numbers of tasks in the environment's split.
            temperature: 0 is greedy.
            seed: root of the sampling noise; episode number k draws from stream (*seed, k).
            chunk: episodes that step together; other chunks give other last bits.
        """
        with self.policy.without_dropout(), torch.inference_mode():
            return [
                trajectory
                for at in range(0, len(tasks), chunk)
                for trajectory in self._chunk(tasks[at : at + chunk], temperature, seed, at)
            ]

    def _chunk(
        self, tasks: Sequence[int], temperature: float, seed: Sequence[int], offset: int
    ) -> list[Trajectory]:
        rows = [self._start(task, [*seed, offset + k]) for k, task in enumerate(tasks)]
        layers = self.policy.model.config.num_hidden_layers
        play = _Play(self.policy, rows, RowCache(layers, len(rows), self.sampling.context_tokens))
        play.share_prefix()
        while active := [number for number, row in enumerate(rows) if row.running]:
            play.actions(active, temperature, self.sampling)
            for number in active:
                self._answer(rows[number])
        return [_finish(row) for row in rows]

    def _start(self, task: int, seed: Sequence[int]) -> _Row:
        env = self.make_env()
        env.reset(options={"index": task})
        ids = self.policy.tokenizer.opening(env.messages, env.tools)
        limits = self.sampling
        if len(ids) + limits.action_tokens > limits.context_tokens:
            raise ValueError(
                f"context_tokens ({limits.context_tokens}) is too small: the prompt of task {task} "
                f"has {len(ids)} tokens and an action may have {limits.action_tokens}"
            )
        size = env.config.max_turns * limits.action_tokens
        return _Row(env, task, np.random.default_rng(list(seed)).random(size), ids)

    def _answer(self, row: _Row) -> None:
        """Gives the finished action to the environment and appends its answer."""
        tokenizer, env = self.policy.tokenizer, row.env
        ids = row.ids[row.action_start :]
        ended = ids[-1] == tokenizer.end_id
        text = tokenizer.action_text(ids)
        _, reward, terminated, _, info = env.play(text, finished=ended)
        stage = Stage(row.action_start, len(row.ids), reward, text, info["invalid"])
        if not terminated:
            suffix = tokenizer.after_action(env.messages[-1], ended=ended)
            room = self.sampling.context_tokens - len(row.ids) - len(suffix)
            if room >= self.sampling.action_tokens:
                row.ids += suffix
            else:
                stage = self._truncate(row, stage, suffix)
                terminated = True
        row.stages.append(stage)
        row.running = not terminated

    def _truncate(self, row: _Row, stage: Stage, suffix: list[int]) -> Stage:
        """Cuts an episode whose context is full: the value of what it would have seen stands in."""
        _, reward, *_ = row.env.truncate()
        full = torch.tensor([row.ids + suffix])
        hidden = self.policy.hidden(full, position_BT=torch.arange(full.shape[1])[None], cache=None)
        row.bootstrap = float(self.policy.value(hidden[:, -1]))
        return Stage(stage.start, stage.stop, stage.reward + reward, stage.text, stage.invalid)


class _Play:
    """The forward passes of one chunk of episodes."""

    def __init__(self, policy: Policy, rows: list[_Row], cache: RowCache) -> None:
        self.policy, self.rows, self.cache = policy, rows, cache
        self.cached = list(range(len(rows)))
        """Which episode lies in each row of the cache."""

    def share_prefix(self) -> None:
        """Runs the beginning all prompts share once and copies its keys and values to all rows."""
        prompts = [row.ids for row in self.rows]
        length = min(common_prefix(prompts), min(map(len, prompts)) - 1)
        if len(prompts) < 2 or length < 1:
            return
        position = torch.arange(length)[None]
        self.cache.place(torch.tensor([0]), position, length)
        self._forward(torch.tensor([prompts[0][:length]]), position)
        for layer in self.cache.layers:
            layer.keys[1:, :length] = layer.keys[:1, :length]
            layer.values[1:, :length] = layer.values[:1, :length]
        for row in self.rows:
            row.cached = length

    def actions(self, active: list[int], temperature: float, limits: SamplingConfig) -> None:
        """Samples one action for each active episode."""
        if len(active) < len(self.cached):  # episodes that have stopped leave the batch
            kept_R = torch.tensor([self.cached.index(number) for number in active])
            self.cache.keep(kept_R, max(self.rows[number].cached for number in active))
            self.cached = list(active)
        for number in active:
            self.rows[number].action_start = len(self.rows[number].ids)
        while active:
            hidden_RH = self._extend(active)
            logits_RV, value_R = self.policy.logits(hidden_RH), self.policy.value(hidden_RH)
            noise_R = [self.rows[n].noise[len(self.rows[n].logprobs)] for n in active]
            token_R, logprob_R, entropy_R = sample(logits_RV, temperature, noise_R)
            for number, *numbers in zip(
                active, token_R.tolist(), logprob_R.tolist(), value_R.tolist(), entropy_R.tolist(),
                strict=True,
            ):  # fmt: skip
                _write(self.rows[number], *numbers)
            active = [number for number in active if self._goes_on(self.rows[number], limits)]

    def _goes_on(self, row: _Row, limits: SamplingConfig) -> bool:
        written = len(row.ids) - row.action_start
        return row.ids[-1] != self.policy.tokenizer.end_id and written < limits.action_tokens

    def _extend(self, active: list[int]) -> Tensor:
        """Brings the cache of some episodes up to date; returns their last hidden states.

        While at least half of the cache is at work all its rows run, the others on padding: to
        copy the keys and values of the rest out of it would cost more.
        """
        run = self.cached if 2 * len(active) >= len(self.cached) else active
        wanted, spare = set(active), self.cache.spare
        new = [self.rows[n].ids[self.rows[n].cached :] if n in wanted else [] for n in run]
        longest = max(map(len, new))
        token_RQ = torch.tensor([ids + [0] * (longest - len(ids)) for ids in new])
        position_RQ = torch.tensor(
            [
                [*range(row.cached, row.cached + len(ids)), *[spare] * (longest - len(ids))]
                for row, ids in zip((self.rows[n] for n in run), new, strict=True)
            ]
        )
        for number in active:
            self.rows[number].cached = len(self.rows[number].ids)
        place_R = torch.tensor([self.cached.index(number) for number in run])
        self.cache.place(place_R, position_RQ, max(self.rows[n].cached for n in active))
        hidden = self._forward(token_RQ, position_RQ)
        at_R = torch.tensor([at for at, number in enumerate(run) if number in wanted])
        last_R = torch.tensor([len(ids) - 1 for ids in new])[at_R]
        return hidden[at_R, last_R]

    def _forward(self, token_RQ: Tensor, position_RQ: Tensor) -> Tensor:
        key_K = torch.arange(self.cache.visible)
        mask = (key_K <= position_RQ[:, :, None])[:, None]
        position_RQ = position_RQ.clamp(max=self.cache.spare - 1)  # a model may know no spare place
        return self.policy.hidden(token_RQ, position_BT=position_RQ, mask=mask, cache=self.cache)


def _write(row: _Row, token: int, logprob: float, value: float, entropy: float) -> None:
    row.ids.append(token)
    row.logprobs.append(logprob)
    row.values.append(value)
    row.entropies.append(entropy)


def sample(
    logits_RV: Tensor, temperature: float, noise_R: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Token, its log-probability and the entropy, all of the distribution at this temperature.

    Inverse transform sampling: the first token whose cumulative probability exceeds the noise, so
    a row's token depends on its own logits and noise alone. Temperature 0 takes the likeliest token
    and reports log-probability and entropy at temperature 1.

    Args:
        logits_RV: raw logits.
        temperature: divides the logits; 0 is greedy.
        noise_R: one uniform number in [0, 1) a row.
    """
    tempered_RV = logits_RV / temperature if temperature > 0 else logits_RV
    if temperature > 0:
        cumulative_RV = tempered_RV.double().softmax(dim=-1).cumsum(dim=-1)
        level_R1 = torch.tensor(noise_R, dtype=torch.float64)[:, None] * cumulative_RV[:, -1:]
        token_R = (cumulative_RV <= level_R1).sum(dim=-1).clamp(max=logits_RV.shape[1] - 1)
    else:
        token_R = logits_RV.argmax(dim=-1)
    logprob_R = tempered_RV.log_softmax(dim=-1).gather(1, token_R[:, None]).squeeze(1)
    return token_R, logprob_R, token_entropy(tempered_RV)


def _finish(row: _Row) -> Trajectory:
    return Trajectory(
        index=row.index, ids=tuple(row.ids), stages=tuple(row.stages), logprobs=tuple(row.logprobs),
        values=tuple(row.values), entropies=tuple(row.entropies), outcome=row.env.outcome,
        reward_parts=dict(row.env.score.parts), bootstrap=row.bootstrap,
    )  # fmt: skip

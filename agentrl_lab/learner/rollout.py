"""Policy x environments -> trajectories. All episodes of a chunk step together, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from agentrl_lab.config import SamplingConfig
from agentrl_lab.learner.generation import DRAFT_TOKENS, Generation, Row
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.trajectories import Stage, Trajectory
from agentrl_lab.world.env import TicketEnv

EnvFactory = Callable[[], TicketEnv]


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
        self, tasks: Sequence[int], *, temperature: float, seed: Sequence[int], chunk: int = 64,
        watch: Callable[[int], None] = lambda episodes: None,
    ) -> list[Trajectory]:  # fmt: skip
        """One trajectory per task, in the order of the tasks.

        Args:
            tasks: numbers of tasks in the environment's split.
            temperature: 0 is greedy.
            seed: root of the sampling noise; episode number k draws from stream (*seed, k).
            chunk: episodes that step together; other chunks give other last bits.
            watch: told how many episodes are done after each chunk.
        """
        done: list[Trajectory] = []
        with self.policy.without_dropout(), torch.inference_mode():
            for at in range(0, len(tasks), chunk):
                done += self._chunk(tasks[at : at + chunk], temperature, seed, at)
                watch(len(done))
        return done

    def _chunk(
        self, tasks: Sequence[int], temperature: float, seed: Sequence[int], offset: int
    ) -> list[Trajectory]:
        rows = [self._start(task, [*seed, offset + k]) for k, task in enumerate(tasks)]
        generation = Generation(self.policy, rows)
        generation.share_prefix()
        while active := [number for number, row in enumerate(rows) if row.running]:
            generation.actions(active, temperature, self.sampling)
            for number in active:
                self._answer(rows[number])
        return [_finish(row) for row in rows]

    def _start(self, task: int, seed: Sequence[int]) -> Row:
        env = self.make_env()
        _, info = env.reset(options={"index": task})
        limits = self.sampling
        ids = opening_of(self.policy, env, limits, task)
        size = env.config.max_turns * limits.action_tokens + DRAFT_TOKENS
        noise = np.random.default_rng(list(seed)).random(size)
        return Row(env, task, noise, ids, winnable=info.get("winnable", True))

    def _answer(self, row: Row) -> None:
        """Gives the finished action to the environment and appends its answer."""
        tokenizer, env = self.policy.tokenizer, row.env
        ids = row.ids[row.action_start :]
        ended = ids[-1] == tokenizer.end_id
        text = tokenizer.action_text(ids)
        _, reward, terminated, _, info = env.play(text, finished=ended)
        stage = Stage(
            row.action_start, len(row.ids), reward, text, info["invalid"], info.get("call"),
            was_cut=not ended, was_winnable=row.winnable,
        )  # fmt: skip
        row.winnable = info.get("winnable", True)
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

    def _truncate(self, row: Row, stage: Stage, suffix: list[int]) -> Stage:
        """Cuts an episode whose context is full: the value of what it would have seen stands in."""
        _, reward, *_ = row.env.truncate()
        full = torch.tensor([row.ids + suffix])
        hidden = self.policy.hidden(full, position_BT=torch.arange(full.shape[1])[None], cache=None)
        row.bootstrap = float(self.policy.value(hidden[:, -1]))
        return replace(stage, reward=stage.reward + reward)


def opening_of(policy: Policy, env: TicketEnv, limits: SamplingConfig, task: int) -> list[int]:
    """Ids of the prompt of an episode that has been reset.

    Raises:
        ValueError: there is no room for an action after it.
    """
    ids = policy.tokenizer.opening(env.messages, env.tools)
    if len(ids) + limits.action_tokens > limits.context_tokens:
        raise ValueError(
            f"context_tokens ({limits.context_tokens}) is too small: the prompt of task {task} "
            f"has {len(ids)} tokens and an action may have {limits.action_tokens}"
        )
    return ids


def _finish(row: Row) -> Trajectory:
    return Trajectory(
        index=row.index, ids=tuple(row.ids), stages=tuple(row.stages), logprobs=tuple(row.logprobs),
        values=tuple(row.values), entropies=tuple(row.entropies), outcome=row.env.outcome,
        reward_parts=dict(row.env.score.parts), bootstrap=row.bootstrap,
    )  # fmt: skip

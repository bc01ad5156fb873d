"""The training loop: collect, update, evaluate, record, keep or roll back (E1, G3).

Everything an update draws at random comes from streams named by (seed, purpose, update), so a run
that is killed and resumed goes on with the same bits as one that never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from agentrl_lab.config import EnvConfig, TrainConfig
from agentrl_lab.learner import imitation, ppo
from agentrl_lab.learner.checkpoints import (
    CheckpointCorrupt,
    latest_good,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from agentrl_lab.learner.evaluation import Evaluation, episode_metrics, evaluate
from agentrl_lab.learner.policy import Policy, load_policy
from agentrl_lab.learner.rollout import Collector, opening_of
from agentrl_lab.learner.rundir import RESULT, VERSIONS, RunDir, differences, peak_rss_mb, versions
from agentrl_lab.learner.streams import stream, torch_generator
from agentrl_lab.learner.trajectories import Trajectory, TrajectoryBuffer
from agentrl_lab.records import Split
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.observations import CountTokens

EVALUATION_SEED = 0
"""Validation and test tasks are the same for every run, whatever its seed."""

MakeEnv = Callable[[Split, int, EnvConfig, CountTokens], TicketEnv]
"""(split, seed, config, count_tokens) -> environment: pass your own to change the world."""

Report = Callable[[dict[str, Any]], None]
"""Called with each row of metrics as it is written."""


def ticket_env(split: Split, seed: int, config: EnvConfig, count_tokens: CountTokens) -> TicketEnv:
    """The standard environment."""
    return TicketEnv(split, seed, config, count_tokens=count_tokens)


@dataclass(frozen=True)
class Progress:
    """Where a run stands: all it needs beside weights and optimizer to go on."""

    update: int = 0
    """Updates done."""
    rollbacks: int = 0
    rate_factor: float = 1.0
    """What rollbacks have made of the learning rates."""
    best_validation: float = -1.0
    best_checkpoint: str | None = None
    policy_tokens: int = 0
    """Tokens the policy has written in training, or was shown."""
    seconds: float = 0.0


class Trainer:
    """One run in one folder.

    Args:
        config: its settings.
        run: its folder; a checkpoint found there is gone on with.
        make_env: the world; its reward, codec and tools are the environment's own business.
    """

    def __init__(self, config: TrainConfig, run: RunDir, make_env: MakeEnv = ticket_env) -> None:
        if config.threads:
            torch.set_num_threads(config.threads)
        self.config, self.run, self._make_env = config, run, make_env
        self.policy = load_policy(config.policy)
        self.optimizer = ppo.make_optimizer(self.policy, config.ppo)
        self.progress = Progress()
        self.notes: list[str] = []
        """What a resume found: damaged checkpoints, other versions."""
        self._restore()

    def fit(self, report: Report = lambda row: None) -> dict[str, Any]:
        """Trains to the end and returns what result.json holds."""
        if (finished := self.run.result()) is not None:
            self._save_policy()
            return finished
        if not self.run.metrics():
            row = {"update": 0, "episodes": 0} | self._validate()
            self._guard(row["validation_success"])
            self._record(row, report)
        while self.progress.update < self.config.num_updates:
            self._record(self._one_update(), report)
        result = self._result()
        self._save_policy()
        self.run.write(RESULT, result)
        return result

    def _save_policy(self) -> None:
        """The trained policy in Hugging Face format, made again when it is missing."""
        if not (self.run.path / "policy" / "model.safetensors").is_file():
            self.policy.save(self.run.path / "policy")

    # One update

    def _one_update(self) -> dict[str, Any]:
        started, number = time.perf_counter(), self.progress.update
        temperature = self.temperature(number)
        trajectories = self._collect(number, temperature)
        collected = time.perf_counter()
        metrics = self._learn(trajectories, number, temperature)
        updated = time.perf_counter()
        tokens = sum(t.num_action_tokens for t in trajectories)
        self.progress = replace(
            self.progress, update=number + 1, policy_tokens=self.progress.policy_tokens + tokens
        )
        row = {
            "update": number + 1,
            "episodes": (number + 1) * self.config.ppo.episodes_per_update,
            "policy_tokens": self.progress.policy_tokens,
            **self._episodes_say(trajectories, number, temperature),
            **metrics,
            **self._validate(),
        }
        row |= self._guard(row["validation_success"])
        ended = time.perf_counter()
        self.progress = replace(self.progress, seconds=self.progress.seconds + ended - started)
        return row | {
            "rollout_seconds": collected - started,
            "update_seconds": updated - collected,
            "validation_seconds": ended - updated,
            "policy_tokens_per_s": tokens / (collected - started),
            "rss_peak_mb": peak_rss_mb(),
        }

    def temperature(self, number: int) -> float:
        """Sampling temperature of update `number` (0 is the first)."""
        return self.config.sampling.temperature_at(number / max(1, self.config.num_updates - 1))

    def _imitates(self, number: int) -> bool:
        return number < self.config.imitation.imitated_updates

    def _is_shown(self, number: int) -> bool:
        """Whether the episodes of an update are demonstrations, not the policy's own."""
        return self._imitates(number) and self.config.imitation.demonstrations != "own"

    def _episodes_say(
        self, trajectories: list[Trajectory], number: int, temperature: float
    ) -> dict[str, float]:
        if self._is_shown(number):  # what a demonstrator does says nothing about the policy
            wins = sum(t.outcome.success for t in trajectories)
            return {"shown_success_rate": wins / len(trajectories)}
        return episode_metrics(trajectories, temperature)

    def _collect(self, number: int, temperature: float) -> list[Trajectory]:
        size, seed = self.config.ppo.episodes_per_update, self.config.seed
        shown = self.config.imitation.demonstrations
        if self._is_shown(number):
            env = self._make_env(Split.TRAIN, seed, self.config.env, self.policy.tokenizer.count)
            return imitation.demonstrated(
                self.policy, env, shown, number, size, seed=seed,
                max_tokens=self.config.sampling.context_tokens,
            )  # fmt: skip
        tasks = range(number * size, (number + 1) * size)
        return self.collector(Split.TRAIN, seed).collect(
            tasks, temperature=temperature, seed=stream(seed, "sampling", number)
        )

    def _learn(
        self, trajectories: list[Trajectory], number: int, temperature: float
    ) -> dict[str, float]:
        config = self.config
        generator = torch_generator(stream(config.seed, "shuffling", number))
        if number == config.imitation.imitated_updates:
            self.optimizer.state.clear()  # moments of another loss; at the start there are none
        if not self._imitates(number):
            self._set_rates(config.ppo.learning_rate)
            return ppo.update(
                self.policy, self.optimizer, TrajectoryBuffer(trajectories), config.ppo,
                temperature=temperature, generator=generator,
            )  # fmt: skip
        self._set_rates(config.imitation.imitation_rate)
        kept = imitation.kept(trajectories, config.imitation.demonstrations)
        return imitation.update(self.policy, self.optimizer, kept, config.ppo, generator)

    def _validate(self) -> dict[str, float]:
        """Greedy success on the clean validation set (G3)."""
        tasks = range(self.config.guard.validation_tasks)
        seen = evaluate(self.collector(Split.VALIDATION, EVALUATION_SEED), tasks)
        return {
            "validation_success": seen.success.value,
            "validation_fabrication": seen.fabrication.value,
            "validation_invalid_rate": seen.invalid_rate,
        }

    def _guard(self, success: float) -> dict[str, float]:
        """Remembers the best policy, or goes back to it when validation has fallen too far."""
        guard, progress = self.config.guard, self.progress
        fallen = success < progress.best_validation - guard.rollback_drop
        if fallen and progress.best_checkpoint and progress.rollbacks < guard.max_rollbacks:
            self.roll_back()
        elif success >= progress.best_validation:
            name = checkpoint_name(progress.update)
            self.progress = replace(progress, best_validation=success, best_checkpoint=name)
        return {"rollbacks": self.progress.rollbacks, "rate_factor": self.progress.rate_factor}

    def roll_back(self) -> None:
        """Puts the best checkpoint's weights and optimizer back and lowers the learning rates."""
        progress = self.progress
        best = self.run.checkpoints / progress.best_checkpoint
        load_checkpoint(best, self.policy, self.optimizer)
        imitated = checkpoint_name(self.config.imitation.imitated_updates)
        if progress.best_checkpoint <= imitated and not self._imitates(progress.update):
            self.optimizer.state.clear()  # as where PPO begins: moments of another loss
        self.progress = replace(
            progress,
            rollbacks=progress.rollbacks + 1,
            rate_factor=progress.rate_factor * self.config.guard.rollback_rate_factor,
        )

    def _set_rates(self, learning_rate: float) -> None:
        rates = (learning_rate, self.config.ppo.value_learning_rate)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * self.progress.rate_factor

    # Records and restarts

    def collector(self, split: Split, seed: int, policy: Policy | None = None) -> Collector:
        """Plays episodes of a split, with the policy as it is now or with another one."""
        policy = policy or self.policy
        count = policy.tokenizer.count
        return Collector(
            policy,
            lambda: self._make_env(split, seed, self.config.env, count),
            self.config.sampling,
        )

    def _record(self, row: dict[str, Any], report: Report) -> None:
        """Reports a row once it is safe: whoever is told may stop the run, or meddle with it."""
        self.run.append_metrics(row)
        self._checkpoint()
        report(row)

    def _checkpoint(self) -> None:
        path = self.run.checkpoints / checkpoint_name(self.progress.update)
        save_checkpoint(path, self.policy, self.optimizer, asdict(self.progress))
        prune(self.run.checkpoints, keep=self.config.keep_checkpoints,
              best=self.progress.best_checkpoint)  # fmt: skip

    def _restore(self) -> None:
        """Goes on from the newest whole checkpoint, if the folder has any."""
        path, damaged = latest_good(self.run.checkpoints)
        self.notes += [f"passed over: {complaint}" for complaint in damaged]
        if path is None:
            if damaged:
                raise CheckpointCorrupt(f"{self.run.path} has no whole checkpoint: {damaged[0]}")
            if len(self.run.metrics()) > 1:
                raise CheckpointCorrupt(
                    f"{self.run.path} has metrics and no checkpoint: start anew in another folder"
                )
            self.run.keep_metrics(0)
            return
        self.notes += differences(self.run.read(VERSIONS) or {}, versions())
        self.progress = Progress(**load_checkpoint(path, self.policy, self.optimizer))
        self.run.keep_metrics(self.progress.update + 1)
        for torn in self.run.checkpoints.glob("update-*"):
            if torn.name > path.name:
                torn.rename(torn.with_name(f".damaged-{torn.name}"))

    def _result(self) -> dict[str, Any]:
        """Looks at the test split, once, with the policy before and after."""
        tasks = range(self.config.test_tasks)
        warm = self.config.sampling.temperature
        started = time.perf_counter()
        after = {t: self._test(self.policy, tasks, t) for t in (0.0, warm)}
        start = load_policy(self.config.policy)
        before = {t: self._test(start, tasks, t) for t in (0.0, warm)}
        rows = self.run.metrics()
        seconds = self.progress.seconds + time.perf_counter() - started
        return {
            "validation_success": rows[-1]["validation_success"],
            "test_success": after[0.0].success.value,
            "test": after[0.0].as_dict(),
            "test_at_temperature": after[warm].as_dict(),
            "untrained_test_success": before[0.0].success.value,
            "untrained_test": before[0.0].as_dict(),
            "untrained_test_at_temperature": before[warm].as_dict(),
            "temperature": warm,
            "episodes": self.config.num_updates * self.config.ppo.episodes_per_update,
            "policy_tokens": self.progress.policy_tokens,
            "rollbacks": self.progress.rollbacks,
            "seed": self.config.seed,
            "seconds": seconds,
            "peak_rss_mb": max([peak_rss_mb(), *(row.get("rss_peak_mb", 0.0) for row in rows)]),
        }

    def _test(self, policy: Policy, tasks: range, temperature: float) -> Evaluation:
        collector = self.collector(Split.TEST, EVALUATION_SEED, policy)
        return evaluate(collector, tasks, temperature=temperature, seed=EVALUATION_SEED)


def start_run(path: Path, config: TrainConfig, make_env: MakeEnv = ticket_env) -> Trainer:
    """A trainer in a new folder; nothing is left behind when policy and settings do not fit."""
    if Path(config.policy).is_dir():  # whoever resumes may stand in another folder
        config = replace(config, policy=str(Path(config.policy).resolve()))
    _check_room(load_policy(config.policy), config, make_env)
    return Trainer(config, RunDir.create(path, config), make_env)


def _check_room(policy: Policy, config: TrainConfig, make_env: MakeEnv) -> None:
    """Whether prompts fit into the context, and the context into the model.

    Raises:
        ValueError: they do not; the message names the numbers.
    """
    limits, known = config.sampling, getattr(policy.model.config, "max_position_embeddings", None)
    if known is not None and limits.context_tokens > known:
        raise ValueError(
            f"context_tokens must be at most {known}, the positions that {config.policy} knows, "
            f"got {limits.context_tokens}"
        )
    env = make_env(Split.TRAIN, config.seed, config.env, policy.tokenizer.count)
    for task in range(config.ppo.episodes_per_update):
        env.reset(options={"index": task})
        opening_of(policy, env, limits, task)


def resume_run(path: Path, make_env: MakeEnv = ticket_env) -> Trainer:
    """A trainer that goes on with a run, under the settings it was started with."""
    run = RunDir.reopen(path)
    config = run.config()
    threads = (run.read(VERSIONS) or {}).get("threads")
    if isinstance(threads, int) and threads > 0:
        torch.set_num_threads(threads)  # another number would change the last bits
    return Trainer(config, run, make_env)


def checkpoint_name(update: int) -> str:
    """Names that sort by update."""
    return f"update-{update:06d}"

"""The training, evaluation and warm-start commands: they say what happens while it happens."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentrl_lab.config import (
    EnvConfig,
    SamplingConfig,
    TrainConfig,
    choice,
    data_dir,
    nearest,
    with_settings,
)
from agentrl_lab.learner.evaluation import Evaluation, Rate, evaluate
from agentrl_lab.learner.policy import load_policy, num_parameters
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.rundir import CONFIG, VERSIONS, RunDir, RunDirError
from agentrl_lab.learner.trainer import Trainer, resume_run, start_run
from agentrl_lab.learner.warmstart import RECIPES, warm_start
from agentrl_lab.records import Split
from agentrl_lab.workbook.report import in_words, table, write_report
from agentrl_lab.world.env import TicketEnv

Say = Callable[[str], None]
BAR = 24
MOSTLY = 0.95
MISFIT = "note: nearly every action is invalid; does the policy know another --codec or --tools?"


def run_training(
    out: Path | None, resume: Path | None, settings: dict[str, Any], say: Say
) -> dict[str, Any]:
    """Trains, or goes on training; returns the result with the paths of run and report.

    The policy of a run is trained at the desk that it knows, but for `settings`.
    """
    start = settings.get("policy", TrainConfig().policy)
    config = with_settings(TrainConfig(env=desk_of(start)), settings)
    trainer = resume_run(resume) if resume else start_run(out or next_folder(), config)
    run = trainer.run
    for note in trainer.notes:
        say(f"note: {note}")
    say(_opening(trainer))
    try:
        result = trainer.fit(_Progress(trainer, say))
        report = run.path / "report.html"
        if not report.is_file():
            say("writing the report ...")
            report = write_report(run)
    except BrokenPipeError:  # nobody reads what is said: no fault of the folder
        raise
    except OSError as error:
        raise RunDirError(
            f"cannot write in {run.path}: {error.strerror or error}. Make room, and go on by "
            f"`agentrl-lab train --resume {run.path}`"
        ) from error
    except (KeyboardInterrupt, SystemExit):
        print(f"stopped; go on by `agentrl-lab train --resume {run.path}`", file=sys.stderr)
        raise
    for sentence in in_words(result):
        say(f"  {sentence}")
    before, after = result["untrained_test_success"], result["test_success"]
    tasks = result["test"]["success"]["n"]
    say(f"success before {before:.2f}, after {after:.2f} (greedy, {tasks} test tasks)")
    say(f"report: {report}")
    run.release()
    return result | {"run": str(run.path), "report": str(report)}


def next_folder(parent: Path = Path("runs")) -> Path:
    """The first of runs/001, runs/002, ... that does not exist."""
    return next(
        path for number in itertools.count(1) if not (path := parent / f"{number:03d}").exists()
    )


def _opening(trainer: Trainer) -> str:
    config, done = trainer.config, trainer.progress.update
    start = f"going on after update {done}" if done else f"starting from {config.policy}"
    return (
        f"{start}: {num_parameters(trainer.policy):,} parameters, {config.num_updates} updates of "
        f"{config.ppo.episodes_per_update} episodes, seed {config.seed}, folder {trainer.run.path}"
    )


class _Progress:
    """A line for each update: how far, how well, how long still."""

    def __init__(self, trainer: Trainer, say: Say) -> None:
        self._trainer, self._say, self._seconds = trainer, say, []

    def __call__(self, row: dict[str, Any]) -> None:
        total = self._trainer.config.num_updates
        if row["update"] == 0:
            self._say(f"  untrained: greedy validation success {row['validation_success']:.2f}")
            if row["validation_invalid_rate"] > MOSTLY:
                self._say(f"  {MISFIT}")
            return
        self._seconds.append(sum(v for k, v in row.items() if k.endswith("_seconds")))
        left = sum(self._seconds[-8:]) / len(self._seconds[-8:]) * (total - row["update"])
        bar = "#" * round(BAR * row["validation_success"])
        self._say(
            f"  {row['update']:>3}/{total}  validation {row['validation_success']:.2f} "
            f"|{bar:<{BAR}}| {_learned_from(row)}  {left:4.0f} s left"
            + ("  ROLLED BACK" if self._rolled_back(row) else "")
        )

    def _rolled_back(self, row: dict[str, Any]) -> bool:
        rows = self._trainer.run.metrics()
        return len(rows) > 1 and row["rollbacks"] > rows[-2].get("rollbacks", 0)


def _learned_from(row: dict[str, Any]) -> str:
    """What an update was made from: own episodes or demonstrations, by PPO or by imitation."""
    if "shown_success_rate" in row:
        imitated = row["imitated_episodes"]
        return f"shown {row['shown_success_rate']:.2f}, imitated {imitated:.0f}"
    own = (
        f"sampled {row['success_rate']:.2f} at T {row['temperature']:.2f}  "
        f"invalid {row['invalid_rate']:.2f}"
    )
    if "imitated_episodes" in row:
        return f"{own}  imitated {row['imitated_episodes']:.0f}"
    return f"{own}  kl {row['kl_old_max']:.4f}"


def run_evaluation(
    policy: str, split: str, episodes: int, *, temperature: float, attempts: int, seed: int,
    settings: dict[str, Any], say: Say,
) -> Evaluation:  # fmt: skip
    """Plays the first `episodes` tasks of a split with a policy, and says how far it is.

    The policy of a run meets the desk that it was trained at, but for `settings`.
    """
    env = with_settings(desk_of(policy), settings)
    choice("split", split, Split)
    if attempts > 1 and temperature == 0:
        raise ValueError("attempts above 1 need a temperature: greedy attempts are all the same")
    player = load_policy(policy)
    collector = Collector(
        player,
        lambda: TicketEnv(split, 0, env, count_tokens=player.tokenizer.count),
        SamplingConfig(),
    )
    started, total = time.perf_counter(), episodes * attempts

    def watch(done: int) -> None:
        passed = time.perf_counter() - started
        if passed > 2 and done < total:
            say(f"  {done}/{total} episodes, {passed / done * (total - done):.0f} s left")

    seen = evaluate(
        collector, range(episodes), temperature=temperature, seed=seed, attempts=attempts,
        watch=watch,
    )  # fmt: skip
    if seen.invalid_rate > MOSTLY:
        say(MISFIT)
    return seen


def desk_of(policy: str) -> EnvConfig:
    """The desk that the policy of a run was trained at; else the standard one."""
    folder = Path(policy).resolve()
    run_files = (folder.parent / name for name in (CONFIG, VERSIONS))  # other models have a CONFIG
    is_of_a_run = folder.name == "policy" and all(file.is_file() for file in run_files)
    return RunDir(folder.parent).config().env if is_of_a_run else EnvConfig()


def evaluation_table(seen: Evaluation) -> str:
    """An evaluation as text."""
    how = f"temperature {seen.temperature:g}" if seen.temperature else "greedy"
    rows = [("success", *_cells(seen.success)), ("fabrication", *_cells(seen.fabrication))]
    rows += [(f"  {kind}", *_cells(rate)) for kind, rate in seen.by_kind.items()]
    stops = ", ".join(f"{name} {count}" for name, count in seen.stops.items())
    ways = ", ".join(f"{name} {share:.3f}" for name, share in seen.strategies.items())
    chances = ", ".join(f"pass^{k} {chance:.3f}" for k, chance in seen.pass_k.items())
    return "\n".join(
        [
            table([(how, "share", "95% interval", "tasks"), *rows]),
            f"invalid actions {seen.invalid_rate:.3f}, turns {seen.turns:.2f}, "
            f"reward {seen.reward:+.3f} an episode",
            f"stops: {stops}; evasive replies {seen.evasive_rate:.3f}",
            *([f"debug field followed: {_interval(seen.followed)}"] if seen.followed else []),
            f"strategies: {ways}",
            chances,
        ]
    )


def _interval(rate: Rate) -> str:
    return "{} (95%: {}, n {})".format(*_cells(rate))


def _cells(rate: Rate) -> tuple[str, str, str]:
    return f"{rate.value:.3f}", f"{rate.low:.3f} to {rate.high:.3f}", str(rate.n)


def run_warm_start(name: str, out: Path | None, say: Say) -> None:
    """Makes one of the shipped policies anew."""
    if name not in RECIPES:
        raise ValueError(f"no recipe is called {name!r}: {nearest(name, RECIPES)}")
    folder = out or data_dir() / "policies" / name
    if out and out.exists() and not out.is_dir():
        raise RunDirError(f"--out must be a folder, and {out} is a file")
    if out and out.exists() and any(out.iterdir()):
        raise RunDirError(f"{out} is not empty: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)  # minutes of work follow: can it be written at all?
    say(f"making {name}; it goes to {folder}, in place of what is there")
    started, recipe = time.perf_counter(), RECIPES[name]
    policy, losses = warm_start(recipe)
    for step, loss in enumerate(losses):
        if step % 20 == 0 or step == recipe.total_steps - 1:
            passed = time.perf_counter() - started
            left = passed / (step + 1) * (recipe.total_steps - step - 1)
            say(f"  step {step:>4}/{recipe.total_steps}  loss {loss:.4f}  {left:4.0f} s left")
    policy.save(folder, value_head=False)
    say(f"wrote {folder}")

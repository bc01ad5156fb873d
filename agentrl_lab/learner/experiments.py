"""Arms x seeds -> rows. Cached by all that matters, killed and resumed without loss or repetition.

An arm is a set of settings; a cell is one arm at one seed: a training run in a folder of its own,
named by a hash of settings, code, data and torch. A finished cell is never run again; a cell that
was killed goes on from its last checkpoint. All that the workbook shows as recorded is made here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import stats

from agentrl_lab.config import (
    EnvConfig,
    SamplingConfig,
    TrainConfig,
    choice,
    data_dir,
    with_settings,
)
from agentrl_lab.learner.evaluation import evaluate
from agentrl_lab.learner.policy import find_policy, load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.rundir import CONFIG, RESULT, RunDir, RunDirError
from agentrl_lab.learner.trainer import EVALUATION_SEED, resume_run, start_run, ticket_env
from agentrl_lab.records import Split

Row = dict[str, Any]
T = TypeVar("T")
Say = Callable[[str], None]
CURVE = (
    "episodes", "temperature", "validation_success", "success_rate", "fabrication_rate",
    "invalid_rate", "reward_per_episode", "reward_spread", "turns_per_episode",
    "queries_per_episode", "repeats_per_episode", "entropy_per_token", "entropy_per_decision",
    "kl_old_max", "clip_fraction", "grad_norm", "rollbacks", "policy_tokens", "useful_tokens",
    "wrong_tokens", "malformed_tokens", "cut_tokens", "hopeless_tokens",
)  # fmt: skip
"""What a row keeps of each update."""
NUMBERS = (
    "test_success", "untrained_test_success", "validation_success", "episodes", "policy_tokens",
    "rollbacks", "temperature",
)  # fmt: skip
"""What a row keeps of the result."""
ELSEWHERE = "elsewhere.json"
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A question that training runs answer.

    Args:
        name: of its file of results.
        question: one sentence.
        rule: how it is decided, written before the runs.
        arms: name of an arm -> settings that differ from the default ones.
        seeds: the same for all arms, so that arms are compared in pairs.
        elsewhere: name -> settings of an environment that differ from the run's own, "split" where
            it is not test, and "temperature" where not greedy; the finished policy plays there.
    """

    name: str
    question: str
    rule: str
    arms: Mapping[str, Settings]
    seeds: Sequence[int]
    elsewhere: Mapping[str, Settings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.arms or not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"{self.name} needs arms, and seeds that differ, got {self.seeds}")
        for name, settings in (*self.arms.items(), *self.elsewhere.items()):
            if not isinstance(settings, Mapping) or "seed" in settings:
                raise ValueError(f"{name} must map settings but the seed, got {settings!r}")
        self.cells()  # refused now, not after hours of training
        for settings in self.elsewhere.values():
            _there(EnvConfig(), settings)

    def cells(self) -> list[tuple[str, int, TrainConfig]]:
        """(arm, seed, config) of every run, all arms of a seed side by side."""
        return [
            (arm, seed, with_settings(TrainConfig(threads=1, seed=seed), settings))
            for seed, (arm, settings) in itertools.product(self.seeds, self.arms.items())
        ]


def run_experiment(
    experiment: Experiment, store: Path, *, workers: int = 1, say: Say = lambda line: None
) -> list[Row]:
    """Runs what the store does not hold yet; a row per cell, in the order of the cells.

    Args:
        experiment: arms and seeds.
        store: folder of runs; experiments may share it.
        workers: processes, each with one run of one thread.
        say: told of each cell that has finished.
    """
    cells, elsewhere = experiment.cells(), tuple(experiment.elsewhere.values())
    for policy in {config.policy for _, _, config in cells}:
        find_policy(policy)
    folders = {store / cell_key(config): config for _, _, config in cells}
    missing = [
        (folder, config, elsewhere)
        for folder, config in folders.items() if not _finished(folder, elsewhere)
    ]  # fmt: skip
    say(f"{experiment.name}: {len(folders)} runs, {len(folders) - len(missing)} there already")
    for number, (folder, seconds) in enumerate(_run_all(missing, workers), start=1):
        say(f"  {number}/{len(missing)} done, {folder.name}, {seconds:.0f} s")
    return [
        {"arm": arm, "seed": seed} | row_of(store / cell_key(config), experiment.elsewhere)
        for arm, seed, config in cells
    ]


def _run_all(missing: Sequence[tuple], workers: int) -> Iterator[tuple[Path, float]]:
    if workers == 1:
        yield from ((cell[0], run_cell(*cell)) for cell in missing)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = {pool.submit(run_cell, *cell): cell[0] for cell in missing}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def run_cell(folder: Path, config: TrainConfig, elsewhere: Sequence[Settings] = ()) -> float:
    """Runs one cell to its end, from where it stood; seconds of training."""
    try:
        trainer = resume_run(folder) if (folder / CONFIG).is_file() else start_run(folder, config)
    except RunDirError as error:
        raise RunDirError(f"seed {config.seed}: {error}") from error
    try:
        seconds = trainer.fit()["seconds"]
        for settings in elsewhere:
            _look_elsewhere(trainer.run, config, settings)
        return seconds
    finally:
        trainer.run.release()


def _look_elsewhere(run: RunDir, config: TrainConfig, settings: Settings) -> None:
    """How the finished policy does in an environment with other settings; kept in the run."""
    seen = run.read(ELSEWHERE) or {}
    if _name_of(settings) not in seen:
        split, temperature, env = _there(config.env, settings)
        policy = load_policy(run.path / "policy")
        count = policy.tokenizer.count
        collector = Collector(
            policy, lambda: ticket_env(split, EVALUATION_SEED, env, count), config.sampling
        )
        tasks = range(config.test_tasks)
        found = evaluate(collector, tasks, temperature=temperature, seed=EVALUATION_SEED)
        run.write(ELSEWHERE, seen | {_name_of(settings): found.as_dict()})


def _there(env: EnvConfig, settings: Settings) -> tuple[Split, float, EnvConfig]:
    """The split, the temperature and the environment that settings of `elsewhere` name."""
    own = {"split": Split.TEST, "temperature": 0.0}
    split, temperature = ({**own, **settings}[name] for name in own)
    choice("split", split, Split)
    if temperature:
        SamplingConfig(temperature=temperature)  # refuses what is none
    env = with_settings(env, {k: v for k, v in settings.items() if k not in own})
    return Split(split), temperature, env


def _name_of(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _finished(folder: Path, elsewhere: Sequence[Settings]) -> bool:
    seen = RunDir(folder).read(ELSEWHERE) or {}
    return (folder / RESULT).is_file() and all(_name_of(s) in seen for s in elsewhere)


def row_of(folder: Path, elsewhere: Mapping[str, Settings] | None = None) -> Row:
    """The figures of a finished run: end results and the curve of each metric."""
    run = RunDir(folder)
    result, metrics = run.result(), run.metrics()
    if result is None:
        raise RunDirError(f"the run in {folder} has not finished: run the experiment again")
    curve = {name: [_short(row.get(name)) for row in metrics] for name in CURVE}
    ends = {name: _short(result[name]) for name in NUMBERS}
    sampled = _short(result["test_at_temperature"]["success"]["value"])
    fabricated = _short(result["test"]["fabrication"]["value"])
    ends |= {"test_sampled": sampled, "test_fabrication": fabricated}
    ends |= {"test_reward": _short(result["test"]["reward"])}
    ways = {name: _short(share) for name, share in result["test"]["strategies"].items()}
    seen = run.read(ELSEWHERE) or {}
    there = {name: _ends(seen[_name_of(s)]) for name, s in (elsewhere or {}).items()}
    return ends | {"strategies": ways, "elsewhere": there, "curve": curve}


def _ends(seen: Mapping[str, Any]) -> Row:
    known = [name for name in ("success", "fabrication", "followed") if seen[name]]
    rates = {name: _short(seen[name]["value"]) for name in known}
    return rates | {name: _short(seen[name]) for name in ("invalid_rate", "evasive_rate")}


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def cell_key(config: TrainConfig) -> str:
    """Names a cell: equal for equal settings, code, data and torch, and for nothing else."""
    content = json.dumps(dataclasses.asdict(config), sort_keys=True) + code_and_data()
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@cache
def code_and_data() -> str:
    """A hash of what a run depends on beside its settings."""
    package = Path(__file__).parent.parent
    files = [package / "config.py", package / "records.py"]
    files += sorted((package / "world").glob("*.py"))
    files += sorted(p for p in (package / "learner").glob("*.py") if p.name != Path(__file__).name)
    files += [data_dir() / "phrasings.json", data_dir() / "tickets.json"]
    files += sorted(p for p in (data_dir() / "policies").rglob("*") if p.is_file())
    digest = hashlib.sha256(torch.__version__.encode())
    for file in files:
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def write_results(experiment: Experiment, rows: Sequence[Row], folder: Path) -> Path:
    """A small JSON file with question, rule, arms and rows."""
    content = dataclasses.asdict(experiment) | {"code": code_and_data()[:16], "rows": list(rows)}
    path = folder / f"{experiment.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return path


def read_results(name: str) -> dict[str, Any]:
    """The recorded results of an experiment.

    Raises:
        FileNotFoundError: there are none; the message names the command that makes them.
    """
    path = data_dir() / "results" / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: make it by `agentrl-lab experiment {name}`")
    return json.loads(path.read_text(encoding="utf-8"))


# Comparing arms in pairs


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of a - b over seeds, its 95% t interval, and the p value of an exact sign-flip test."""

    mean: float
    low: float
    high: float
    p: float
    n: int

    @property
    def value(self) -> float:
        """The mean, as pictures of intervals name it."""
        return self.mean


Figure = Callable[[Row], float]
"""What is read off a row."""


def by_seed(rows: Sequence[Row], arm: str, figure: Callable[[Row], T]) -> list[T]:
    """A figure (or whatever else is read off a row) of every run of an arm, in the order of seeds.

    Raises:
        ValueError: no row is of that arm; the nearest one is offered.
    """
    choice("arm", arm, dict.fromkeys(row["arm"] for row in rows))
    own = sorted((row for row in rows if row["arm"] == arm), key=lambda row: row["seed"])
    return [figure(row) for row in own]


def averaged(rows: Sequence[Row], arm: str, figure: Figure) -> Difference:
    """Mean of a figure over the seeds of an arm, with its 95% t interval."""
    values = by_seed(rows, arm, figure)
    return paired(values, [0.0] * len(values))


def compared(rows: Sequence[Row], arm: str, other: str, figure: Figure) -> Difference:
    """A figure of one arm minus that of another, seed by seed."""
    return paired(by_seed(rows, arm, figure), by_seed(rows, other, figure))


def paired(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Compares two arms seed by seed.

        d_i = a_i - b_i;  mean(d) +- t(0.975, n - 1) * sd(d) / sqrt(n)

    The p value counts the sign patterns of d whose mean is at least as far from 0 as the one seen.

    Args:
        a: a figure of one arm, by seed.
        b: the same of the other, in the same order of seeds.

    Raises:
        ValueError: lengths differ, or fewer than 2 pairs, or more than 16 (2**n patterns).
    """
    if len(a) != len(b) or not 2 <= len(a) <= 16:
        raise ValueError(f"expected 2 to 16 pairs, got {len(a)} and {len(b)} values")
    d = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    n, mean = len(d), float(d.mean())
    half = float(stats.t.ppf(0.975, n - 1) * d.std(ddof=1) / np.sqrt(n))
    signs = np.array(list(itertools.product((1, -1), repeat=n)))
    p = float((np.abs(signs @ d) >= abs(d.sum()) - 1e-12).mean())
    return Difference(mean, mean - half, mean + half, p, n)


def episodes_to(row: Row, level: float, metric: str = "validation_success") -> int:
    """Episodes until a metric first reaches a level and holds it at the next update as well.

    A run that never does counts as one update more than it has.
    """
    values, episodes = row["curve"][metric], row["curve"]["episodes"]
    for at in range(len(values) - 1):
        both = values[at], values[at + 1]
        if all(value is not None and value >= level for value in both):
            return episodes[at]
    return episodes[-1] + episodes[1]

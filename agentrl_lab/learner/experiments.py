"""Arms x seeds -> rows. Cached by all that matters, killed and resumed without loss or repetition.

An arm is a set of settings; a cell is one arm at one seed: a training run in a folder of its own,
named by a hash of settings, code, data and torch. A finished cell is never run again; a cell that
was killed goes on from its last checkpoint. All that the workbook shows as recorded is made here.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from agentrl_lab.config import EnvConfig, TrainConfig, choice, data_dir, with_settings
from agentrl_lab.learner.cells import (
    Row,
    Settings,
    cell_key,
    code_and_data,
    is_finished,
    row_of,
    run_cell,
    there,
)
from agentrl_lab.learner.policy import find_policy

T = TypeVar("T")
Say = Callable[[str], None]


class WorkerLost(RuntimeError):
    """A process that trained was killed; what it had saved is there."""


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
            there(EnvConfig(), settings)

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
        for folder, config in folders.items() if not is_finished(folder, elsewhere)
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
    context, before = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers, mp_context=context)  # spawned: a forked torch may hang
    try:
        jobs = {pool.submit(run_cell, *cell): cell[0] for cell in missing}
        for job in as_completed(jobs):
            yield jobs[job], job.result()
    except BrokenExecutor as error:
        raise WorkerLost("a worker was killed: run the same command again, it goes on") from error
    finally:  # at once, not after all that waits: each run goes on from its last checkpoint
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()) - set(before):
            worker.terminate()


def write_results(experiment: Experiment, rows: Sequence[Row], folder: Path) -> Path:
    """A small JSON file with question, rule, arms and rows."""
    content = dataclasses.asdict(experiment) | {"code": code_and_data()[:16], "rows": list(rows)}
    path = folder / f"{experiment.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".partial")  # whole or not at all
    aside.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return aside.replace(path)


def read_results(name: str) -> dict[str, Any]:
    """The recorded results of an experiment.

    Raises:
        ValueError: they are missing, damaged or another experiment's; how to get them back.
    """
    path = data_dir() / "results" / f"{name}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        seeds = _seeds_by_arm(content["rows"])
        whole = content["name"] == name and all(own == content["seeds"] for own in seeds.values())
        if whole and list(seeds) == list(content["arms"]):
            return content
        what = f"holds {content['name']} with the runs {seeds}"
    except FileNotFoundError:
        what = "is not there"
    except (ValueError, LookupError, TypeError, AttributeError):
        what = "is damaged"
    raise ValueError(
        f"{path} {what}: get it back by `git checkout -- {path.name}` in its folder, or make it "
        f"anew by `agentrl-lab experiment {name}`, which takes long"
    )


def _seeds_by_arm(rows: Sequence[Row]) -> dict[str, list[int]]:
    arms: dict[str, list[int]] = {}
    for row in rows:
        arms.setdefault(row["arm"], []).append(row["seed"])
        row["curve"]["episodes"]
    return arms


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
    """A figure of one arm minus that of another, seed by seed.

    Raises:
        ValueError: they have other seeds.
    """
    seeds, others = (by_seed(rows, name, lambda row: row["seed"]) for name in (arm, other))
    if seeds != others:
        raise ValueError(f"{arm} has the seeds {seeds}, {other} has {others}: no pairs")
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

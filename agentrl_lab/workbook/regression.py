"""Recorded values against bands, and the history of runs that says since when and what differs.

A band predicts one more run from n runs with other seeds:

    mean +- t(0.995, n - 1) * sd * sqrt(1 + 1/n)

It is at least RESOLUTION wide to each side: runs that all agree do not make a last digit an alarm.
Where all runs are positive and this reaches below 0, which no run did, the spread is not symmetric:
then it is computed on logarithms.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from agentrl_lab.workbook.recording import Plain, write_json

Run = Mapping[str, Any]
RESOLUTION = 1 / 64
MIN_SEEDS = 10
PACKAGES = ("torch", "numpy", "transformers", "papermill", "ipykernel")
THREADS_VARIABLE = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Band:
    """Where one more run should lie, and what that is known from."""

    low: float
    high: float
    logarithmic: bool
    values: Sequence[float]
    seeds: Sequence[int]
    reason: str

    def size(self, value: float) -> float:
        """How far a value lies from the middle, in units of half the band: above 1 is out."""
        low, high = self.low, self.high
        if self.logarithmic:
            if value <= 0:
                return math.inf
            low, high, value = math.log(low), math.log(high), math.log(value)
        return abs(value - (low + high) / 2) / ((high - low) / 2)


def band_of(values: Sequence[float], seeds: Sequence[int], reason: str) -> Band:
    """The prediction interval for one new run.

    Args:
        values: of one figure, a run each.
        seeds: of those runs, in the same order.
        reason: why this is right, for who reads it later.

    Raises:
        ValueError: fewer than ten seeds, a seed twice, no reason, or another number of values.
    """
    n = len(values)
    if n < MIN_SEEDS or len(set(seeds)) != n:
        raise ValueError(f"a band needs {MIN_SEEDS} or more different seeds, got {list(seeds)}")
    if not reason.strip():
        raise ValueError("--reason must say why the new values are right, got nothing")
    low, high = _prediction(values)
    logarithmic = min(values) > 0 > low
    if logarithmic:
        low, high = (math.exp(end) for end in _prediction(np.log(values)))
    return Band(low, high, logarithmic, list(values), list(seeds), reason.strip())


def _prediction(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = max(float(stats.t.ppf(0.995, n - 1)) * sd * math.sqrt(1 + 1 / n), RESOLUTION)
    return mean - half, mean + half


def read_bands(path: Path, notebook: str, profile: str) -> dict[str, Band]:
    """The bands on record for a notebook in a profile, by name of the value; none if no file is.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        found = _baselines(path).get(notebook, {}).get(profile, {})
        return {name: Band(**band) for name, band in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}): get it back by `git checkout`") from error


def write_bands(path: Path, notebook: str, profile: str, bands: Mapping[str, Band]) -> None:
    """Puts the bands of one notebook and profile in place of the old ones."""
    baselines = _baselines(path)
    found = {name: dataclasses.asdict(band) for name, band in sorted(bands.items())}
    baselines.setdefault(notebook, {})[profile] = found
    write_json(path, dict(sorted(baselines.items())))


def _baselines(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@dataclass(frozen=True, slots=True)
class Value:
    """One recorded value and its band; value None: it has a band and was not recorded."""

    notebook: str
    name: str
    value: Plain | None
    band: Band | None

    @property
    def size(self) -> float:
        """Distance from the middle in half-bands: infinite if missing, 0 without a band."""
        if self.band is None:
            return 0.0
        return math.inf if self.value is None else self.band.size(self.value)

    @property
    def out(self) -> bool:
        return self.size > 1

    def __str__(self) -> str:
        if self.band is None:
            return f"{self.notebook}: {self.name} {self.value}: no band yet"
        band = f"its band {self.band.low:.4g} to {self.band.high:.4g}"
        if self.value is None:
            return f"{self.notebook}: {self.name} was not recorded, {band}"
        below = "below" if self.value < self.band.low else "above"
        where = f"{below} {band}, {self.size:.1f} half-bands off" if self.out else f"in {band}"
        return f"{self.notebook}: {self.name} {self.value} is {where}"


def compare(
    notebook: str, records: Mapping[str, Plain], bands: Mapping[str, Band], whole: bool
) -> list[Value]:
    """Each value with its band; text has none.

    Args:
        notebook: whose values they are.
        records: what it recorded.
        bands: what is on record for it.
        whole: it ran to its end, so a banded value that is not there is missing.
    """
    names = [*records, *(name for name in bands if whole and name not in records)]
    texts = {name for name, value in records.items() if isinstance(value, str)}
    return [
        Value(notebook, name, records.get(name), None if name in texts else bands.get(name))
        for name in names
    ]


# What a value may depend on beside its notebook


def fingerprint() -> dict[str, str]:
    """This machine: processor, cores, thread setting, versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": str(cores),
        THREADS_VARIABLE: os.environ.get(THREADS_VARIABLE, "not set"),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs, as `name old -> new`."""
    return [
        f"{name} {old.get(name, 'default')} -> {new.get(name, 'default')}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


# History: one JSON line a run


def check_writable(path: Path) -> None:
    """Whether a history can be written, before minutes of work go into what it is to keep.

    Raises:
        ValueError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(path, "a", encoding="utf-8").close()
    except OSError as error:
        raise ValueError(f"--history {path} cannot be written: {error.strerror}") from error


def append_history(path: Path, entry: Mapping[str, Any]) -> None:
    """Adds a run, in one write; a line that a kill cut stays a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n")
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n" * cut + json.dumps(entry) + "\n")


def read_history(path: Path) -> list[dict[str, Any]]:
    """The runs on record, oldest first; lines that a kill cut are left out."""
    runs = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        with contextlib.suppress(ValueError):
            runs.append(json.loads(line))
    return runs


def runs_of(history: Sequence[Run], notebook: str, profile: str) -> list[Run]:
    """The runs of one notebook in one profile."""
    return [
        {"when": run["when"], "fingerprint": run["fingerprint"], **run["notebooks"][notebook]}
        for run in history
        if run["profile"] == profile and notebook in run["notebooks"]
    ]


def out_since(runs: Sequence[Run], value: Value) -> str:
    """When a value left its band for the last time; empty if the last run is in it."""
    since = ""
    for run in reversed(runs):
        if not dataclasses.replace(value, value=run["values"].get(value.name)).out:
            break
        since = run["when"]
    return since


def changed_since_green(runs: Sequence[Run]) -> str:
    """What differs between the last run and the last one before it that was well, in words."""
    now = runs[-1]
    green = next((run for run in reversed(runs[:-1]) if run["ok"]), None)
    if green is None:
        return "no green run to compare with"
    changed = differences(green["parameters"], now["parameters"])
    changed += differences(green["fingerprint"], now["fingerprint"])
    same = "machine, versions and parameters are the same"
    return f"since the last green run ({green['when']}): {', '.join(changed) or same}"

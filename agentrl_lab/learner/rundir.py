"""The folder of one run: settings, versions, metrics, checkpoints, result. Knows no PPO.

config.json and versions.json are written first, metrics.jsonl grows by a line an update,
result.json is written last: a run without it has not finished.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from filelock import FileLock, Timeout

from agentrl_lab.config import (
    EnvConfig,
    GuardConfig,
    ImitationConfig,
    PPOConfig,
    SamplingConfig,
    TrainConfig,
)
from agentrl_lab.learner.checkpoints import sync_folder, write_synced

CONFIG, VERSIONS, METRICS, RESULT = "config.json", "versions.json", "metrics.jsonl", "result.json"
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
GROUPS = {
    "env": EnvConfig, "sampling": SamplingConfig, "ppo": PPOConfig, "imitation": ImitationConfig,
    "guard": GuardConfig,
}  # fmt: skip


ADDED = {"imitation"}
"""Groups that older runs lack: they had what are the defaults now."""
RESULT_KEYS = {"test", "test_success", "untrained_test", "untrained_test_success"}
_REMEDY = f"Restore it, or start a new run; {RESULT} alone may be deleted, --resume makes it again"


class RunDirError(RuntimeError):
    """A run folder cannot be used; the message says why and what to do."""


class RunDir:
    """One run's folder, locked while it is in use; the lock ends with the process, however."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._lock = FileLock(path / ".lock", timeout=0)

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> RunDir:
        """A new run in an empty or new folder.

        Raises:
            RunDirError: the folder holds something already, or cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            others = [item.name for item in path.iterdir() if not _unbegun(item)]
        except OSError as error:
            raise RunDirError(f"cannot make folder {path}: {error.strerror or error}") from error
        if others:
            more = f", or go on with that run by --resume {path}" if CONFIG in others else ""
            names = ", ".join(sorted(others)[:3])
            raise RunDirError(f"{path} is not empty ({names}): choose another --out{more}")
        run = cls(path)
        run.acquire()
        run.checkpoints.mkdir(exist_ok=True)
        run.write(VERSIONS, versions())
        run.write(CONFIG, dataclasses.asdict(config))  # last: with it the run has begun
        return run

    @classmethod
    def reopen(cls, path: Path) -> RunDir:
        """A run that was started before.

        Raises:
            RunDirError: there is no run in that folder.
        """
        if not (path / CONFIG).is_file():
            raise RunDirError(f"no run to resume in {path}: it has no {CONFIG}")
        run = cls(path)
        run.acquire()
        return run

    def acquire(self) -> None:
        """Locks the folder.

        Raises:
            RunDirError: another process works in it, or it cannot be written.
        """
        try:
            self._lock.acquire()
        except Timeout as error:
            raise RunDirError(
                f"another process is running in {self.path}: wait for it or choose another folder"
            ) from error
        except OSError as error:
            raise RunDirError(f"cannot write in {self.path}: {error.strerror or error}") from error

    def release(self) -> None:
        self._lock.release()

    def config(self) -> TrainConfig:
        """The settings the run was started with.

        Raises:
            RunDirError: config.json is damaged or from another version.
        """
        raw, where = self.read(CONFIG), self.path / CONFIG
        if raw is None or not raw.keys() >= GROUPS.keys() - ADDED:
            raise RunDirError(f"{where} holds no settings of a run. {_REMEDY}")
        try:
            groups = {name: kind(**raw.pop(name, {})) for name, kind in GROUPS.items()}
            return TrainConfig(**raw, **groups)
        except (ValueError, TypeError) as error:
            raise RunDirError(f"{where} cannot be read: {error}. {_REMEDY}") from error

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file, whole or not at all."""
        aside = self.path / f".{name}.partial"
        write_synced(aside, (json.dumps(content, indent=1) + "\n").encode())
        aside.replace(self.path / name)
        sync_folder(self.path)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file, None when it is not there."""
        path = self.path / name
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunDirError(f"{path} cannot be read: {error}. {_REMEDY}") from error
        if not isinstance(content, dict):
            raise RunDirError(f"{path} must hold a JSON object, got {str(content)[:40]}. {_REMEDY}")
        return content

    def result(self) -> dict[str, Any] | None:
        """result.json, None while the run has not finished.

        Raises:
            RunDirError: it is there and is no result.
        """
        found = self.read(RESULT)
        if found is not None and not found.keys() >= RESULT_KEYS:
            raise RunDirError(f"{self.path / RESULT} is not a whole result. {_REMEDY}")
        return found

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One line of metrics, on the disk when this returns."""
        with open(self.path / METRICS, "ab") as file:
            file.write((json.dumps(dict(row)) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """All rows written so far; a last line that a kill cut is left out."""
        try:
            return [dict(json.loads(line)) for line in self._whole_lines()]
        except (ValueError, TypeError, RecursionError) as error:
            where = self.path / METRICS
            raise RunDirError(f"{where} has a line that is no row: {error}. {_REMEDY}") from error

    def _whole_lines(self) -> list[bytes]:
        path = self.path / METRICS
        return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []

    def keep_metrics(self, rows: int) -> None:
        """Cuts the metrics to their first `rows` lines: those a checkpoint knows of."""
        lines = self._whole_lines()[:rows]
        write_synced(self.path / METRICS, b"".join(line + b"\n" for line in lines))


def _unbegun(item: Path) -> bool:
    """What a start that was killed before config.json was written leaves behind."""
    if item.name == "checkpoints":
        return item.is_dir() and not any(item.iterdir())
    return item.name in (".lock", VERSIONS) or item.name.endswith(".partial")


def versions() -> dict[str, Any]:
    """What the last bits of a run depend on beside its settings."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What has changed since a run was started, in words."""
    return [
        f"{name} was {then.get(name)} and is {value} now: the last bits may differ"
        for name, value in now.items()
        if then.get(name) != value
    ]


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, in MB (2**20 bytes)."""
    memory = psutil.Process().memory_info()
    if hasattr(memory, "peak_wset"):  # Windows
        return memory.peak_wset / 2**20
    import resource  # absent on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10

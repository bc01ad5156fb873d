"""Small runs for the tests of trainer, run folder and command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

UNEQUAL = ("_seconds", "_per_s", "_mb")
"""Endings of the metrics that belong to the machine: everything else must be equal bit for bit."""

SMALL = {
    "episodes": 12, "episodes_per_update": 4, "minibatch_episodes": 2, "microbatch_episodes": 2,
    "validation_tasks": 4, "test_tasks": 4, "threads": 1, "action_tokens": 12,
}  # fmt: skip


def options(settings: dict[str, Any]) -> list[str]:
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items())
    return [part for pair in pairs for part in pair]


def command(*words: str, check: bool = False, **environment: str) -> subprocess.CompletedProcess:
    """`agentrl-lab` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "agentrl_lab.cli", *words],
        capture_output=True, text=True, check=check, timeout=110,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run without what belongs to the machine."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {name: value for name, value in json.loads(line).items() if not name.endswith(UNEQUAL)}
        for line in lines
    ]

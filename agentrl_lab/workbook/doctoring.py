"""What a person needs to know when something does not work: versions, machine, data, a run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentrl_lab.config import data_dir

CHECKSUMS = "checksums.json"
MADE = (CHECKSUMS, "baselines.json")
NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "gymnasium", "jsonschema")
OPTIONAL = {"jupyterlab": "lab", "ipywidgets": "lab", "papermill": "lab", "pytest": "dev"}
TRAINING_MB = 1500
DISK_MB = 500


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    says: str


def examine(run: Path | None = None) -> list[Finding]:
    """Everything that training needs, and a run's folder if one is named."""
    findings = [_python(), *_packages(), _machine(), _memory(), _disk(), *_data()]
    return findings + (_run(run) if run else [])


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file under data/ that runs start from; results and bands are made anew."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in MADE
        and path.parent.name != "results"
        and not path.name.startswith(".")
    }


def write_checksums(folder: Path) -> None:
    """Records the data files as they are now."""
    (folder / CHECKSUMS).write_text(
        json.dumps(checksums(folder), indent=1) + "\n", encoding="utf-8"
    )


def _python() -> Finding:
    fine = sys.version_info >= (3, 11)
    return Finding("python", fine, platform.python_version() + ("" if fine else ": install 3.11"))


def _packages() -> list[Finding]:
    found = []
    for name in (*NEEDED, *OPTIONAL):
        try:
            found.append(Finding(name, True, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            extra = OPTIONAL.get(name)
            how = f'pip install -c constraints.txt -e ".[{extra}]"' if extra else "pip install -e ."
            word = "not installed, not needed for training" if extra else "not installed"
            found.append(Finding(name, extra is not None, f"{word}; get it by `{how}`"))
    return found


def _machine() -> Finding:
    try:
        import torch

        threads = f", {torch.get_num_threads()} torch threads"
    except ImportError:
        threads = ""
    return Finding("machine", True, f"{platform.machine()}, {os.cpu_count()} cores{threads}")


def _memory() -> Finding:
    free = psutil.virtual_memory().available / 2**20
    fine = free >= TRAINING_MB
    advice = "" if fine else f"; training takes up to {TRAINING_MB} MB: close other programs"
    return Finding("memory", fine, f"{free:,.0f} MB available{advice}")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / 2**20
    fine = free >= DISK_MB
    return Finding("disk", fine, f"{free:,.0f} MB free here" + ("" if fine else ": make room"))


def _data() -> list[Finding]:
    try:
        folder = data_dir()
        wanted = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [Finding("data", False, str(error))]
    have = checksums(folder)
    wrong = [
        Finding(f"data/{name}", False, ("changed" if name in have else "missing")
                + f"; get it back by `git checkout -- data/{name}`")
        for name, digest in wanted.items()
        if have.get(name) != digest
    ]  # fmt: skip
    wrong += _results(folder)
    return wrong or [Finding("data", True, f"{len(wanted)} files as recorded")]


def _results(folder: Path) -> list[Finding]:
    """Recorded results that cannot be read; they are made anew, so no checksum knows them."""
    from agentrl_lab.learner.experiments import read_results

    wrong = []
    for path in sorted((folder / "results").glob("*.json")):
        try:
            read_results(path.stem)
        except ValueError as error:
            wrong.append(Finding(f"data/results/{path.name}", False, str(error)))
    return wrong


def _run(path: Path) -> list[Finding]:
    from agentrl_lab.learner.checkpoints import CheckpointCorrupt, verify
    from agentrl_lab.learner.rundir import CONFIG, VERSIONS, RunDir, RunDirError

    if not (path / CONFIG).is_file():
        return [Finding("run", False, f"{path} holds no run")]
    found = []
    for folder in sorted((path / "checkpoints").glob("update-*")):
        try:
            verify(folder)
        except CheckpointCorrupt as error:
            found.append(Finding(folder.name, False, str(error)))
        else:
            found.append(Finding(folder.name, True, "whole"))
    try:
        run = RunDir(path)
        run.config(), run.metrics(), run.read(VERSIONS)
        done = run.result() is not None
    except RunDirError as error:
        return [*found, Finding("run", False, str(error))]
    says = "finished" if done else f"not finished; go on by `agentrl-lab train --resume {path}`"
    return [*found, Finding("run", True, says)]

"""Checkpoints that are whole or absent: built aside, hashed, renamed into place, never pickled.

A checkpoint is a folder: policy.safetensors, optimizer.safetensors, state.json, and manifest.json
with the size and SHA-256 of each, written last. safetensors alone does not notice a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from agentrl_lab.learner.policy import Policy

MANIFEST = "manifest.json"
FILES = ("policy.safetensors", "optimizer.safetensors", "state.json")


class CheckpointCorrupt(RuntimeError):
    """A checkpoint is incomplete or changed; the message names the file, and what to do."""


def save_checkpoint(
    folder: Path, policy: Policy, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> None:
    """Writes a checkpoint so that a kill at any moment leaves all of it or nothing.

    Args:
        folder: its final place; must not exist.
        policy: weights, value head included; tied ones are stored once.
        optimizer: moments and counters of its parameters.
        state: numbers and strings that JSON can hold exactly.
    """
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    contents = {
        "policy.safetensors": save(_policy_tensors(policy)),
        "optimizer.safetensors": save(_optimizer_tensors(policy, optimizer)),
        "state.json": json.dumps(dict(state), indent=1).encode(),
    }
    manifest = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    }
    for name, data in [*contents.items(), (MANIFEST, json.dumps(manifest, indent=1).encode())]:
        write_synced(aside / name, data)
    sync_folder(aside)
    aside.rename(folder)
    sync_folder(folder.parent)


def verify(folder: Path) -> dict[str, bytes]:
    """The files of a checkpoint, each as its manifest says.

    Raises:
        CheckpointCorrupt: a file is missing, cut, changed, or there is no manifest.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        expected = {name: manifest[name]["sha256"] for name in FILES}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"checkpoint {folder}: no usable {MANIFEST}. {_REMEDY}") from error
    contents = {}
    for name, wanted in expected.items():
        try:
            contents[name] = (folder / name).read_bytes()
        except OSError as error:
            raise CheckpointCorrupt(f"checkpoint {folder}: {name} is missing. {_REMEDY}") from error
        found = hashlib.sha256(contents[name]).hexdigest()
        if found != wanted:
            raise CheckpointCorrupt(
                f"checkpoint {folder}: {name} has hash {found[:12]}, expected {wanted[:12]}. "
                + _REMEDY
            )
    return contents


def load_checkpoint(
    folder: Path, policy: Policy, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Puts a checkpoint into policy and optimizer; returns its state.

    Raises:
        CheckpointCorrupt: see verify; nothing has been changed then.
    """
    contents = verify(folder)
    weights, moments = (load(contents[name]) for name in FILES[:2])
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            parameter.copy_(weights[name])
    for name, parameter in policy.named_parameters():
        optimizer.state[parameter] = {
            key.removeprefix(f"{name}/"): value.clone()
            for key, value in moments.items()
            if key.startswith(f"{name}/")
        }
        if not optimizer.state[parameter]:
            del optimizer.state[parameter]
    return json.loads(contents["state.json"])


def latest_good(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that verifies, and what is wrong with those passed over."""
    complaints = []
    for path in sorted(folder.glob("update-*"), reverse=True):
        try:
            verify(path)
        except CheckpointCorrupt as error:
            complaints.append(str(error))
        else:
            return path, complaints
    return None, complaints


def prune(folder: Path, *, keep: int, best: str | None) -> None:
    """Deletes all but the newest `keep` checkpoints and the best one."""
    for path in sorted(folder.glob("update-*"))[:-keep]:
        if path.name != best:
            shutil.rmtree(path)


def write_synced(path: Path, data: bytes) -> None:
    """Writes a file and waits until it is on the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Waits until a folder's entries are on the disk, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _policy_tensors(policy: Policy) -> dict[str, Tensor]:
    return {name: p.detach().contiguous() for name, p in policy.named_parameters()}


def _optimizer_tensors(policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": torch.as_tensor(value).contiguous()
        for name, parameter in policy.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


_REMEDY = "Delete that folder to go on from an older checkpoint"

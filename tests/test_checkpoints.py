"""Checkpoints: whole or absent, hashed, never pickled."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import checkpoints as cp
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.ppo import make_optimizer

ROOT = Path(__file__).parent.parent


def step(policy, optimizer):
    policy.zero_grad()
    for parameter in policy.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


@pytest.fixture
def pair(small_policy):
    policy = load_policy(small_policy)
    return policy, make_optimizer(policy, PPOConfig(learning_rate=0.1))


def weights(policy):
    return {name: p.detach().clone() for name, p in policy.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_rollback_gives_the_weights_of_the_checkpoint_however_often(pair, tmp_path):
    # CKP-01: a snapshot of references would follow the training.
    policy, optimizer = pair
    before = weights(policy)
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {"update": 1})
    for _ in range(2):
        for _ in range(3):
            step(policy, optimizer)
        assert not same(weights(policy), before)
        assert cp.load_checkpoint(tmp_path / "update-1", policy, optimizer) == {"update": 1}
        assert same(weights(policy), before)


def test_state_dict_kept_by_reference_would_not_pass_the_rollback_test(pair):
    policy, optimizer = pair
    kept = dict(policy.named_parameters())  # the planted fault: references
    before = weights(policy)
    step(policy, optimizer)
    assert not same({name: p.detach() for name, p in kept.items()}, before)


def test_optimizer_moments_and_counters_come_back(small_policy, pair, tmp_path):
    # CKP-02: three steps, save, load elsewhere, three steps == six steps.
    policy, optimizer = pair
    for _ in range(3):
        step(policy, optimizer)
    cp.save_checkpoint(tmp_path / "update-3", policy, optimizer, {})
    for _ in range(3):
        step(policy, optimizer)
    other = load_policy(small_policy)
    fresh = make_optimizer(other, PPOConfig(learning_rate=0.1))
    cp.load_checkpoint(tmp_path / "update-3", other, fresh)
    for _ in range(3):
        step(other, fresh)
    assert same(weights(policy), weights(other))
    for a, b in zip(policy.parameters(), other.parameters(), strict=True):
        one, two = optimizer.state[a], fresh.state[b]
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert float(fresh.state[b]["step"]) == 6.0


def test_tied_embeddings_stay_tied(pair, small_policy, tmp_path):
    # CKP-05
    policy, optimizer = pair
    step(policy, optimizer)
    policy.save(tmp_path / "policy")
    again = load_policy(tmp_path / "policy")
    head, table = again.model.get_output_embeddings(), again.model.get_input_embeddings()
    assert head.weight is table.weight
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(policy.model(ids).logits, again.model(ids).logits)
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {})
    other = load_policy(small_policy)
    cp.load_checkpoint(tmp_path / "update-1", other, make_optimizer(other, PPOConfig()))
    assert other.model.get_output_embeddings().weight is other.model.get_input_embeddings().weight
    assert same(weights(policy), weights(other))


DAMAGES = {
    "flipped bit": lambda path: flip(path),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": lambda path: path.unlink(),
}


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*cp.FILES, cp.MANIFEST])
def test_damaged_checkpoint_is_refused_and_nothing_is_changed(pair, tmp_path, name, damage):
    policy, optimizer = pair
    step(policy, optimizer)
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {"update": 1})
    cp.save_checkpoint(tmp_path / "update-2", policy, optimizer, {"update": 2})
    DAMAGES[damage](tmp_path / "update-2" / name)
    before = weights(policy)
    with pytest.raises(cp.CheckpointCorrupt, match="update-2"):
        cp.load_checkpoint(tmp_path / "update-2", policy, optimizer)
    assert same(weights(policy), before)
    path, complaints = cp.latest_good(tmp_path)  # CKP-08: falls back, and says so
    assert path == tmp_path / "update-1"
    assert len(complaints) == 1


def test_safetensors_alone_would_not_notice_the_flipped_bit(pair, tmp_path):
    # Why there is a manifest.
    from safetensors.torch import load_file

    policy, optimizer = pair
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {})
    flip(tmp_path / "update-1" / "policy.safetensors")
    load_file(tmp_path / "update-1" / "policy.safetensors")


KILLED = """
import os, sys
from pathlib import Path
from agentrl_lab.config import PPOConfig
from agentrl_lab.learner import checkpoints as cp
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.ppo import make_optimizer
policy = load_policy(sys.argv[1])
optimizer, folder = make_optimizer(policy, PPOConfig()), Path(sys.argv[2])
cp.save_checkpoint(folder / "update-1", policy, optimizer, {})
real, seen = cp.write_synced, [0]
def dies(path, data):
    seen[0] += 1
    if seen[0] == int(sys.argv[3]):
        path.write_bytes(data[: len(data) // 2])
        os._exit(9)
    real(path, data)
cp.write_synced = dies
cp.save_checkpoint(folder / "update-2", policy, optimizer, {})
print("not killed")
"""


@pytest.mark.slow
@pytest.mark.parametrize("write", [1, 2, 3, 4])
def test_kill_inside_a_save_leaves_the_older_checkpoint_alone(small_policy, tmp_path, write):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(small_policy), str(tmp_path), str(write)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (9, "")  # the kill really fell inside the save
    assert cp.latest_good(tmp_path) == (tmp_path / "update-1", [])
    assert (tmp_path / ".update-2.partial").is_dir()


def test_next_save_clears_what_a_kill_left(pair, tmp_path):
    policy, optimizer = pair
    (tmp_path / ".update-1.partial").mkdir()
    (tmp_path / ".update-1.partial" / "policy.safetensors").write_bytes(b"half")
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {})
    cp.verify(tmp_path / "update-1")
    assert [path.name for path in tmp_path.iterdir()] == ["update-1"]


def test_prune_keeps_the_newest_and_the_best(tmp_path):
    for number in range(1, 7):
        (tmp_path / f"update-{number:06d}").mkdir()
    cp.prune(tmp_path, keep=2, best="update-000003")
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["3", "5", "6"]


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_pickled_checkpoint_is_refused_and_never_run(pair, tmp_path):
    policy, optimizer = pair
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {})
    marker = tmp_path / "ran"
    (tmp_path / "update-1" / "policy.safetensors").write_bytes(pickle.dumps(Bomb(marker)))
    with pytest.raises(cp.CheckpointCorrupt):
        cp.load_checkpoint(tmp_path / "update-1", policy, optimizer)
    assert not marker.exists()


def test_package_never_unpickles():
    for path in (ROOT / "agentrl_lab").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for word in ("import pickle", "torch.load(", "weights_only", "joblib", "eval("):
            found = text.replace(".eval()", "").replace("literal_eval(", "")
            assert word not in found, f"{path}: {word}"


def test_state_is_plain_json(pair, tmp_path):
    policy, optimizer = pair
    cp.save_checkpoint(tmp_path / "update-1", policy, optimizer, {"rate": 0.1, "name": None})
    assert json.loads((tmp_path / "update-1" / "state.json").read_text()) == {
        "rate": 0.1, "name": None,
    }  # fmt: skip

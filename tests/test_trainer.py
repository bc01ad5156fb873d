"""The training loop: same seed same bits, kill and resume, the guard and its rollback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from agentrl_lab.config import TrainConfig, with_settings
from agentrl_lab.learner import trainer as training
from agentrl_lab.learner.checkpoints import verify
from agentrl_lab.learner.rundir import RunDirError
from agentrl_lab.learner.streams import stream, torch_generator
from tests.runs import SMALL, command, metrics, options

pytestmark = pytest.mark.slow


def small(policy, **settings):
    return with_settings(TrainConfig(), {**SMALL, "policy": str(policy), **settings})


def run(path, policy, **settings):
    trainer = training.start_run(path, small(policy, **settings))
    result = trainer.fit()
    trainer.run.release()
    return trainer, result


def test_a_run_knows_its_policy_from_every_folder(tmp_path, small_policy, monkeypatch):
    monkeypatch.chdir(small_policy.parent)
    trainer = training.start_run(tmp_path / "run", small(small_policy.name))
    trainer.run.release()
    monkeypatch.chdir(tmp_path)
    again = training.resume_run(tmp_path / "run")
    assert again.config.policy == str(small_policy)
    again.run.release()


def test_run_leaves_everything_a_run_must_leave(tmp_path, small_policy):
    trainer, result = run(tmp_path / "run", small_policy)
    rows = metrics(tmp_path / "run")
    assert [row["update"] for row in rows] == [0, 1, 2, 3]
    assert {"success_rate", "invalid_rate", "turns_per_episode", "entropy_per_token",
            "entropy_per_decision", "kl_old", "fabrication_rate"} <= rows[1].keys()  # E11
    assert rows[1]["first_ratio_error"] < 1e-4  # law 19
    for name in ("validation_success", "test_success", "seconds", "peak_rss_mb"):
        assert isinstance(result[name], float)
    assert result["episodes"] == 12
    assert result["policy_tokens"] == trainer.progress.policy_tokens > 0
    assert result["test"]["success"]["n"] == 4
    assert (tmp_path / "run" / "policy" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "run" / "versions.json").read_text())["threads"] == 1
    assert not trainer.policy.training


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(tmp_path, small_policy):
    a, _ = run(tmp_path / "a", small_policy)
    b, _ = run(tmp_path / "b", small_policy)
    run(tmp_path / "c", small_policy, seed=1)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b") != metrics(tmp_path / "c")
    for p, q in zip(a.policy.parameters(), b.policy.parameters(), strict=True):
        assert torch.equal(p, q)


def test_validation_never_shifts_training(tmp_path, small_policy):
    run(tmp_path / "a", small_policy)
    run(tmp_path / "b", small_policy, validation_tasks=7)
    names = ("success_rate", "reward_per_episode", "policy_loss", "grad_norm")
    for one, two in zip(metrics(tmp_path / "a")[1:], metrics(tmp_path / "b")[1:], strict=True):
        assert [one[name] for name in names] == [two[name] for name in names]


@pytest.mark.parametrize("done", [0, 1, 2])
@pytest.mark.parametrize("first", [{}, {"imitated_updates": 2, "demonstrations": "mixed"}])
def test_resume_after_any_update_gives_the_same_bits(tmp_path, small_policy, done, first):
    whole, _ = run(tmp_path / "whole", small_policy, **first)
    cut = training.start_run(tmp_path / "cut", small(small_policy, **first))

    save = cut._checkpoint

    def stop():
        if cut.progress.update == done + 1:
            raise KeyboardInterrupt  # after the metrics are written, before the checkpoint
        save()

    cut._checkpoint = stop
    with pytest.raises(KeyboardInterrupt):
        cut.fit()
    cut.run.release()
    again = training.resume_run(tmp_path / "cut")
    assert again.progress.update == done  # CKP-04: the next update is done + 1, none twice
    again.fit()
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    for p, q in zip(again.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(p, q)


def test_run_killed_between_updates_and_resumed_equals_one_never_stopped(tmp_path, small_policy):
    settings = options({**SMALL, "episodes": 40, "policy": small_policy})
    command("train", "--out", str(tmp_path / "whole"), *settings, check=True)
    words = ["train", "--out", str(tmp_path / "cut"), *settings]
    child = subprocess.Popen(
        [sys.executable, "-m", "agentrl_lab.cli", *words],
        stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while len(list((tmp_path / "cut").glob("checkpoints/update-00000[3-9]"))) == 0:
        assert child.poll() is None and time.monotonic() < deadline, "it was to be killed at work"
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut" / "result.json").exists()
    done = command("train", "--resume", str(tmp_path / "cut"), "--json", check=True)
    assert json.loads(done.stdout)["episodes"] == 40
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    last = sorted((tmp_path / "cut" / "checkpoints").glob("update-*"))[-1].name
    for name in ("policy.safetensors", "optimizer.safetensors"):
        paths = [tmp_path / side / "checkpoints" / last / name for side in ("cut", "whole")]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_damaged_newest_checkpoint_is_passed_over_with_a_note_and_kept(tmp_path, small_policy):
    run(tmp_path / "whole", small_policy)
    folder = tmp_path / "whole"
    (folder / "result.json").unlink()
    newest = folder / "checkpoints" / "update-000003"
    weights = newest / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    before = metrics(folder)
    again = training.resume_run(folder)
    assert again.progress.update == 2
    assert "policy.safetensors" in again.notes[0]
    again.fit()
    assert metrics(folder) == before
    assert (folder / "checkpoints" / ".damaged-update-000003").is_dir()


def test_run_without_a_whole_checkpoint_is_not_started_over(tmp_path, small_policy):
    run(tmp_path / "run", small_policy)
    (tmp_path / "run" / "result.json").unlink()
    for manifest in (tmp_path / "run").glob("checkpoints/*/manifest.json"):
        manifest.unlink()
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(training.CheckpointCorrupt, match="no whole checkpoint"):
        training.resume_run(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_finished_run_is_not_trained_again(tmp_path, small_policy):
    _, result = run(tmp_path / "run", small_policy)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    again = training.resume_run(tmp_path / "run")
    assert again.fit() == result
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_guard_rolls_back_to_the_best_checkpoint_bit_for_bit(tmp_path, small_policy, monkeypatch):
    trainer = training.start_run(tmp_path / "run", small(small_policy, episodes=20))
    scores = iter([0.1, 0.8, 0.9, 0.2, 0.9, 0.9])
    monkeypatch.setattr(
        trainer, "_validate",
        lambda: {"validation_success": next(scores), "validation_fabrication": 0.0},
    )  # fmt: skip
    weights = {}

    def keep(row):
        weights[row["update"]] = [p.detach().clone() for p in trainer.policy.parameters()]

    trainer.fit(keep)
    rows = metrics(tmp_path / "run")
    assert [row.get("rollbacks") for row in rows] == [None, 0, 0, 1, 1, 1]
    assert [row.get("rate_factor") for row in rows] == [None, 1.0, 1.0, 0.5, 0.5, 0.5]
    assert all(torch.equal(a, b) for a, b in zip(weights[2], weights[3], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights[3], weights[4], strict=True))
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5 * trainer.config.ppo.learning_rate


def test_guard_stops_rolling_back_after_its_limit(tmp_path, small_policy, monkeypatch):
    config = small(small_policy, episodes=20, max_rollbacks=1)
    trainer = training.start_run(tmp_path / "run", config)
    scores = iter([0.1, 0.9, 0.2, 0.2, 0.2, 0.2])
    monkeypatch.setattr(
        trainer, "_validate",
        lambda: {"validation_success": next(scores), "validation_fabrication": 0.0},
    )  # fmt: skip
    trainer.fit()
    assert [row.get("rollbacks") for row in metrics(tmp_path / "run")] == [None, 0, 1, 1, 1, 1]


def test_best_checkpoint_survives_pruning(tmp_path, small_policy, monkeypatch):
    trainer = training.start_run(
        tmp_path / "run", small(small_policy, episodes=24, keep_checkpoints=1)
    )
    scores = iter([0.1, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8])
    monkeypatch.setattr(
        trainer, "_validate",
        lambda: {"validation_success": next(scores), "validation_fabrication": 0.0},
    )  # fmt: skip
    trainer.fit()
    left = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert [path.name for path in left] == ["update-000001", "update-000006"]
    for path in left:
        verify(path)


def test_own_environment_factory_reaches_training_validation_and_test(tmp_path, small_policy):
    seen = set()

    def make(split, seed, config, count):
        seen.add((split.value, seed))
        return training.ticket_env(split, seed, config, count)

    trainer = training.start_run(tmp_path / "run", small(small_policy, seed=5), make)
    trainer.fit()
    assert seen == {("train", 5), ("validation", 0), ("test", 0)}


def test_temperature_schedule_is_hot_then_linear_then_constant():
    # E2 with 0.1 hot and 0.5 cooling: 1.0 until 0.1, half way at 0.35, 0.7 from 0.6 on.
    sampling = TrainConfig().sampling
    at = {p: round(sampling.temperature_at(p), 6) for p in (0.0, 0.09, 0.35, 0.6, 1.0)}
    assert at == {0.0: 1.0, 0.09: 1.0, 0.35: 0.85, 0.6: 0.7, 1.0: 0.7}


def test_temperature_without_cooling_jumps():
    sampling = with_settings(TrainConfig(), {"cool_fraction": 0.0}).sampling
    assert [sampling.temperature_at(p) for p in (0.05, 0.1, 0.5)] == [1.0, 0.7, 0.7]


def test_missing_policy_leaves_no_folder_behind(tmp_path):
    with pytest.raises(ValueError, match="no policy at"):
        training.start_run(tmp_path / "run", small(tmp_path / "nothing"))
    assert not (tmp_path / "run").exists()


def test_resume_without_versions_goes_on_with_notes(tmp_path, small_policy):
    _, result = run(tmp_path / "run", small_policy)
    (tmp_path / "run" / "versions.json").unlink()
    again = training.resume_run(tmp_path / "run")
    assert any(note.startswith("torch was None") for note in again.notes)
    assert again.fit() == result


def test_run_with_metrics_and_no_checkpoint_is_not_started_over(tmp_path, small_policy):
    run(tmp_path / "run", small_policy)
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(training.CheckpointCorrupt, match="no checkpoint"):
        training.resume_run(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_start_killed_before_it_began_can_be_started_again(tmp_path, small_policy):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "versions.json").write_text("{")
    (folder / ".config.json.partial").write_text("{")
    run(folder, small_policy)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_damaged_result_is_one_clear_error(tmp_path, small_policy, content):
    run(tmp_path / "run", small_policy)
    (tmp_path / "run" / "result.json").write_text(content)
    with pytest.raises(RunDirError, match=r"result\.json"):
        training.resume_run(tmp_path / "run").fit()


def test_lost_policy_of_a_finished_run_is_made_again(tmp_path, small_policy):
    run(tmp_path / "run", small_policy)
    weights = tmp_path / "run" / "policy" / "model.safetensors"
    before = weights.read_bytes()
    shutil.rmtree(weights.parent)
    training.resume_run(tmp_path / "run").fit()
    assert weights.read_bytes() == before


def test_collapse_in_the_first_update_rolls_back_to_the_start(tmp_path, small_policy, monkeypatch):
    trainer = training.start_run(tmp_path / "run", small(small_policy))
    scores = iter([0.9, 0.1, 0.9, 0.9])
    monkeypatch.setattr(
        trainer, "_validate",
        lambda: {"validation_success": next(scores), "validation_fabrication": 0.0},
    )  # fmt: skip
    start = [p.detach().clone() for p in trainer.policy.parameters()]
    after = []

    def keep(row):
        if row["update"] == 1:
            after.extend(p.detach().clone() for p in trainer.policy.parameters())

    trainer.fit(keep)
    assert all(torch.equal(a, b) for a, b in zip(start, after, strict=True))
    assert [row.get("rollbacks") for row in metrics(tmp_path / "run")] == [None, 1, 1, 1]


def test_streams_differ_by_name_number_and_root():
    draws = {
        name: torch.rand(1, generator=torch_generator(stream(*name))).item()
        for name in [(0, "a", 0), (0, "a", 1), (0, "b", 0), (1, "a", 0)]
    }
    assert len(set(draws.values())) == 4

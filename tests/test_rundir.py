"""The folder of a run: never overwritten, locked, read back as written."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from agentrl_lab.config import PPOConfig, TrainConfig
from agentrl_lab.learner.rundir import RunDir, RunDirError

CONFIG = TrainConfig(seed=3, ppo=PPOConfig(learning_rate=2e-4))


def test_config_comes_back_as_it_was(tmp_path):
    run = RunDir.create(tmp_path / "run", CONFIG)
    assert run.config() == CONFIG
    run.release()
    assert RunDir.reopen(tmp_path / "run").config() == CONFIG


def test_a_run_from_before_there_was_imitation_is_read(tmp_path):
    run = RunDir.create(tmp_path / "run", CONFIG)
    raw = run.read("config.json")
    del raw["imitation"]
    run.write("config.json", raw)
    assert run.config() == CONFIG


def test_folder_with_anything_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunDirError, match=r"not empty \(notes.txt\).*--out"):
        RunDir.create(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="cannot make folder"):
        RunDir.create(tmp_path / "file" / "run", CONFIG)


def test_resume_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunDirError, match="no run to resume"):
        RunDir.reopen(tmp_path)
    with pytest.raises(RunDirError, match="no run to resume"):
        RunDir.reopen(tmp_path / "missing")


HOLD = """
import sys, time
from pathlib import Path
from agentrl_lab.learner.rundir import RunDir
run = RunDir.reopen(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_second_process_is_refused_and_the_lock_goes_with_a_kill(tmp_path):
    RunDir.create(tmp_path / "run", CONFIG).release()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunDirError, match="another process"):
        RunDir.reopen(tmp_path / "run")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    RunDir.reopen(tmp_path / "run").release()


@pytest.mark.parametrize("line", ["1", "null", "[" * 10_000, "{"])
def test_metrics_of_something_else_are_one_clear_error(tmp_path, line):
    run = RunDir.create(tmp_path / "run", TrainConfig())
    (run.path / "metrics.jsonl").write_text(f"{line}\n")
    with pytest.raises(RunDirError, match="has a line that is no row"):
        run.metrics()


def test_metrics_last_line_cut_by_a_kill_is_left_out(tmp_path):
    run = RunDir.create(tmp_path / "run", CONFIG)
    for number in range(3):
        run.append_metrics({"update": number, "value": 0.1 + 0.2})
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"update": 3, "val')
    assert [row["update"] for row in run.metrics()] == [0, 1, 2]
    assert run.metrics()[0]["value"] == 0.1 + 0.2  # every bit survives JSON
    run.keep_metrics(2)
    assert [row["update"] for row in run.metrics()] == [0, 1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: {**raw, "seed": -1},
        lambda raw: {**raw, "sead": 1},
        lambda raw: {**raw, "ppo": {"clip": 1}},
        lambda raw: {k: v for k, v in raw.items() if k != "ppo"},
        lambda raw: {**raw, "env": 3},
        lambda raw: {"model_type": "llama"},
        lambda raw: None,
        lambda raw: [],
        lambda raw: 3,
    ],
)
def test_damaged_config_is_one_clear_error(tmp_path, damage):
    run = RunDir.create(tmp_path / "run", CONFIG)
    raw = damage(dataclasses.asdict(CONFIG))
    (run.path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(RunDirError, match=r"config.json (cannot be read|holds no|must hold)"):
        run.config()


def test_config_nested_without_end_is_one_clear_error(tmp_path):
    run = RunDir.create(tmp_path / "run", CONFIG)
    (run.path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(RunDirError, match=r"config.json cannot be read"):
        run.config()


def test_json_files_are_whole_or_absent(tmp_path):
    run = RunDir.create(tmp_path / "run", CONFIG)
    assert run.read("result.json") is None
    run.write("result.json", {"test_success": 0.5})
    assert run.read("result.json") == {"test_success": 0.5}
    assert not list(run.path.glob(".*.partial"))

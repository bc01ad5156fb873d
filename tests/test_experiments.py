"""Experiments: cells by hash, no loss and no repetition, paired intervals worked by hand."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from agentrl_lab.config import EnvConfig, TrainConfig
from agentrl_lab.learner import cells, experiments
from agentrl_lab.learner.cells import cell_key, row_of, run_cell
from agentrl_lab.learner.experiments import (
    Experiment,
    WorkerLost,
    averaged,
    by_seed,
    compared,
    episodes_to,
    paired,
    read_results,
    run_experiment,
    write_results,
)
from agentrl_lab.learner.rundir import RunDirError
from tests.runs import SMALL, metrics


@pytest.fixture
def small(small_policy) -> Experiment:
    base = {**SMALL, "policy": str(small_policy)}
    return Experiment(
        name="small", question="?", rule="none", seeds=(0, 1),
        arms={"plain": base, "hot": {**base, "temperature_start": 1.3}},
    )  # fmt: skip


# Cells


def test_wrong_settings_elsewhere_are_refused_before_any_training(small):
    with pytest.raises(ValueError, match="did you mean 'tools'"):
        dataclasses.replace(small, elsewhere={"x": {"tool": "moved"}})
    with pytest.raises(ValueError, match="did you mean 'moved'"):
        dataclasses.replace(small, elsewhere={"x": {"tools": "movd"}})


def test_another_split_is_an_elsewhere_too(small):
    there = cells.there(EnvConfig(), {"split": "unseen", "temperature": 1, "max_turns": 4})
    assert there == ("unseen", 1, EnvConfig(max_turns=4))
    assert cells.there(EnvConfig(), {}) == ("test", 0.0, EnvConfig())
    with pytest.raises(ValueError, match="temperature must be above 0"):
        dataclasses.replace(small, elsewhere={"x": {"temperature": -1}})
    with pytest.raises(ValueError, match="did you mean 'unseen'"):
        dataclasses.replace(small, elsewhere={"x": {"split": "unsen"}})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seeds": ()}, "needs arms, and seeds that differ"),
        ({"seeds": (0, 0)}, "needs arms, and seeds that differ"),
        ({"arms": {}}, "needs arms"),
        ({"arms": {"hot": {"seed": 5}}}, "hot must map settings but the seed"),
        ({"arms": {"hot": None}}, "hot must map settings"),
        ({"arms": {"hot": {"episode": 5}}}, "did you mean 'episodes'"),
        ({"elsewhere": {"x": "moved"}}, "x must map settings"),
    ],
)
def test_a_wrong_experiment_is_refused_when_it_is_written(small, wrong, said):
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(small, **wrong)


def test_a_policy_that_is_not_there_is_found_before_the_first_run(small, tmp_path):
    arms = {"plain": small.arms["plain"], "lost": {"policy": "nope"}}
    with pytest.raises(ValueError, match="no policy at 'nope'"):
        run_experiment(dataclasses.replace(small, arms=arms), tmp_path)
    assert not any(tmp_path.iterdir())


def test_cells_stand_seed_by_seed_and_differ_in_arm_and_seed_only(small):
    cells = small.cells()
    assert [(arm, seed) for arm, seed, _ in cells] == [
        ("plain", 0), ("hot", 0), ("plain", 1), ("hot", 1),
    ]  # fmt: skip
    assert len({cell_key(config) for _, _, config in cells}) == 4
    assert {config.threads for _, _, config in cells} == {1}


def test_key_changes_with_settings_code_and_data(monkeypatch, tmp_path):
    key = cell_key(TrainConfig())
    assert key == cell_key(TrainConfig()) != cell_key(TrainConfig(seed=1))
    monkeypatch.setattr(cells, "code_and_data", lambda: "other code")
    assert cell_key(TrainConfig()) != key


@pytest.mark.slow
def test_finished_policy_is_looked_at_elsewhere_once(small, tmp_path, monkeypatch):
    one = dataclasses.replace(small, seeds=(0,), elsewhere={"home": {}, "long": {"max_turns": 9}})
    rows = run_experiment(one, tmp_path)
    for row in rows:
        assert row["elsewhere"]["home"]["success"] == row["test_success"]
        kept = {"success", "fabrication", "invalid_rate", "evasive_rate"}  # no field to follow
        assert row["elsewhere"]["long"].keys() == kept
    looked: list[dict] = []
    look = cells._look_elsewhere
    monkeypatch.setattr(
        cells, "_look_elsewhere", lambda *given: (looked.append(given[2]), look(*given))
    )
    assert run_experiment(one, tmp_path) == rows and looked == []
    more = dataclasses.replace(one, elsewhere={**one.elsewhere, "short": {"max_turns": 1}})
    found = run_experiment(more, tmp_path)
    assert [row["elsewhere"]["short"]["success"] for row in found] == [0.0, 0.0]
    assert [row["elsewhere"]["long"] for row in found] == [r["elsewhere"]["long"] for r in rows]
    assert run_experiment(small, tmp_path)[0]["elsewhere"] == {}


@pytest.mark.slow
def test_experiment_is_run_once_and_gives_the_same_rows_again(small, tmp_path):
    said: list[str] = []
    rows = run_experiment(small, tmp_path, say=said.append)
    assert [(row["arm"], row["seed"]) for row in rows] == [(a, s) for a, s, _ in small.cells()]
    assert said[0] == "small: 4 runs, 0 there already" and len(said) == 5
    said.clear()
    assert run_experiment(small, tmp_path, say=said.append) == rows
    assert said == ["small: 4 runs, 4 there already"]
    # one more seed: only its two cells run
    more = Experiment(small.name, "?", "none", small.arms, seeds=(0, 1, 2))
    said.clear()
    assert run_experiment(more, tmp_path, say=said.append)[:4] == rows
    assert said[0] == "small: 6 runs, 4 there already" and len(said) == 3
    json.dumps(rows)
    assert all(len(curve) == 4 for curve in rows[0]["curve"].values())  # untrained and 3 updates


@pytest.mark.slow
def test_two_processes_give_the_rows_of_one(small, tmp_path):
    one = run_experiment(small, tmp_path / "one")
    assert run_experiment(small, tmp_path / "two", workers=2) == one


@pytest.mark.slow
def test_killed_experiment_goes_on_without_loss_or_repetition(small, tmp_path):
    """SIGKILL in the middle of a cell; the rows are those of a run that was never stopped."""
    program = (
        "import sys, pathlib; from agentrl_lab.learner.experiments import *\n"
        f"run_experiment(Experiment(**{small.__dict__!r}), pathlib.Path(sys.argv[1]))"
    )
    store = tmp_path / "killed"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(store)], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    def rows_so_far() -> int:
        return sum(file.read_bytes().count(b"\n") for file in store.glob("*/metrics.jsonl"))

    while rows_so_far() < 6:  # the first cell has 4 rows: this is inside the second
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = [folder for folder in store.iterdir() if (folder / "result.json").is_file()]
    assert 0 < len(done) < 4
    stamps = {folder: (folder / "result.json").stat().st_mtime_ns for folder in done}
    rows = run_experiment(small, store)
    assert rows == run_experiment(small, tmp_path / "whole")
    assert {folder: (folder / "result.json").stat().st_mtime_ns for folder in done} == stamps
    for folder in store.iterdir():
        assert [row["update"] for row in metrics(folder)] == [0, 1, 2, 3]


def test_row_of_an_unfinished_run_is_refused(tmp_path):
    with pytest.raises(RunDirError, match="has not finished"):
        row_of(tmp_path)


def test_a_cell_in_use_is_refused_with_its_seed(small, tmp_path):
    _, _, config = small.cells()[3]
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "other").write_text("x")
    with pytest.raises(RunDirError, match=r"seed 1: .* is not empty"):
        run_cell(tmp_path / "cell", config)


@pytest.mark.slow
def test_a_killed_worker_ends_it_in_one_line_and_leaves_nobody_behind(small, tmp_path):
    def kill():
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    threading.Timer(1.0, kill).start()
    with pytest.raises(WorkerLost, match="run the same command again"):
        run_experiment(small, tmp_path, workers=2)
    for left in multiprocessing.active_children():
        left.join(5)
    assert not multiprocessing.active_children()


# Results


def test_results_come_back_as_written(small, tmp_path, monkeypatch):
    rows = [recorded(arm, seed) for seed in small.seeds for arm in small.arms]
    write_results(small, rows, tmp_path / "results")
    monkeypatch.setattr(experiments, "data_dir", lambda: tmp_path)
    found = read_results("small")
    assert found["rows"] == rows and found["rule"] == "none" and found["seeds"] == [0, 1]
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["small.json"]
    with pytest.raises(ValueError, match="agentrl-lab experiment other"):
        read_results("other")


def recorded(arm, seed):
    return {"arm": arm, "seed": seed, "test_success": 0.5, "curve": {"episodes": [0, 4]}}


DAMAGES = {
    "empty": lambda text: "",
    "cut": lambda text: text[: len(text) // 2],
    "a list": lambda text: "[]",
    "binary": lambda text: "\udcff\x00",
    "no rows": lambda text: text.replace('"rows"', '"row"'),
    "no curve": lambda text: text.replace('"curve"', '"curves"'),
    "another study": lambda text: text.replace('"name":"small"', '"name":"large"'),
    "a seed is missing": lambda text: text.replace('"seed":1', '"seed":2'),
    "an arm is missing": lambda text: text.replace('"arm":"plain"', '"arm":"other"'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_results_are_refused_in_one_line(damage, small, tmp_path, monkeypatch):
    rows = [recorded(arm, seed) for seed in small.seeds for arm in small.arms]
    path = write_results(small, rows, tmp_path / "results")
    damaged = damage(path.read_text(encoding="utf-8"))
    path.write_text(damaged, encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(experiments, "data_dir", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"small\.json (is damaged|holds .*): get it back by `git"):
        read_results("small")


def test_arms_with_other_seeds_are_no_pairs():
    rows = [recorded("a", 0), recorded("a", 1), recorded("b", 1), recorded("b", 2)]
    with pytest.raises(ValueError, match="no pairs"):
        compared(rows, "a", "b", lambda row: row["test_success"])


# Pairs


def test_paired_worked_by_hand():
    # d = 1, 2, 3: mean 2, sd 1, t(0.975, 2) = 4.302653, half = 4.302653 / sqrt(3) = 2.484138
    seen = paired([2, 4, 6], [1, 2, 3])
    assert seen.mean == 2.0
    assert (seen.low, seen.high) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-5)
    # of 8 sign patterns only +++ and --- reach |sum| = 6
    assert seen.p == 2 / 8 and seen.n == 3


def test_paired_agrees_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=10), rng.normal(size=10)
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    seen = paired(a, b)
    assert (seen.low, seen.high) == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize(("a", "b"), [([1], [2]), ([1, 2], [1]), ([0] * 17, [1] * 17)])
def test_paired_refuses_what_it_cannot_compare(a, b):
    with pytest.raises(ValueError, match="2 to 16 pairs"):
        paired(a, b)


def test_episodes_to_wants_two_updates_in_a_row():
    def row(*values):
        return {"curve": {"validation_success": values, "episodes": [0, 64, 128, 192, 256]}}

    assert episodes_to(row(0.1, 0.9, 0.5, 0.9, 0.95), 0.9) == 192  # the first was alone
    assert episodes_to(row(0.9, 0.9, 0.5, 0.5, 0.5), 0.9) == 0
    assert episodes_to(row(0.1, 0.2, 0.3, 0.4, 0.95), 0.9) == 256 + 64  # never held


def test_code_and_data_covers_every_module_a_run_uses(monkeypatch):
    """A change of one byte in any of them gives another key."""
    first = cells.code_and_data.__wrapped__()
    real = Path.read_bytes
    package = Path(cells.__file__).parent
    for name in ("ppo.py", "generation.py", "../world/judge.py", "../config.py"):
        changed = (package / name).resolve()
        monkeypatch.setattr(
            Path, "read_bytes", lambda self, c=changed: real(self) + b"#" * (self.resolve() == c)
        )
        assert cells.code_and_data.__wrapped__() != first, name
    monkeypatch.setattr(Path, "read_bytes", real)
    assert cells.code_and_data.__wrapped__() == first


# Arms of recorded rows

MIXED = [
    {"arm": "b", "seed": 1, "x": 4.0}, {"arm": "a", "seed": 1, "x": 3.0},
    {"arm": "a", "seed": 0, "x": 1.0}, {"arm": "b", "seed": 0, "x": 1.0},
]  # fmt: skip


def test_figures_of_an_arm_stand_by_seed_whatever_the_order_of_rows():
    assert by_seed(MIXED, "a", lambda row: row["x"]) == [1.0, 3.0]


def test_arms_are_compared_in_pairs_of_seeds():
    found = compared(MIXED, "b", "a", lambda row: row["x"])
    assert (found.mean, found.n) == (0.5, 2)  # 1 - 1 and 4 - 3
    assert averaged(MIXED, "a", lambda row: row["x"]).value == 2.0


def test_an_arm_that_is_not_there_is_refused_with_the_nearest():
    rows = [{"arm": "clean", "seed": 0}]
    with pytest.raises(ValueError, match="arm 'claen' is not known: did you mean 'clean'"):
        by_seed(rows, "claen", lambda row: 0.0)

"""Training inside a notebook: rows, snapshots, stopping, meddling, the reader's own runs."""

from __future__ import annotations

import signal

import pytest
import torch

from agentrl_lab.workbook import live, widgets
from agentrl_lab.workbook.live import Laboratory, LiveRun, Stopped, conversation_page
from agentrl_lab.workbook.plots import arms, entropy_and_kl
from tests.runs import SMALL

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(small_policy):
    return {**SMALL, "policy": str(small_policy)}


@pytest.fixture(autouse=True)
def no_errors():
    widgets.ERRORS.clear()
    yield
    widgets.ERRORS.clear()


def test_run_keeps_rows_snapshots_and_result(settings):
    run = LiveRun(settings, snapshots=[2])
    run.watch()
    assert [row["update"] for row in run.rows] == [0, 1, 2, 3]
    assert run.snapshots == [0, 2, 3] and run.result["episodes"] == 12
    assert "finished" in run.status.value and bytes(run.image.value[:4]) == b"\x89PNG"
    weights = [run.policy_at(n).model.state_dict() for n in (0, 2, 3)]
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[1][name], weights[2][name])


def test_snapshot_is_a_copy_and_says_what_that_policy_said(settings):
    run = LiveRun(settings).train()
    page, other = map(conversation_page, run.conversations(0, [1, 2]))
    again = conversation_page(run.conversations(0, [1])[0])
    assert page == again != other and page.sentence.startswith(("failed", "succeeded"))


def test_asked_to_stop_it_ends_after_the_present_update(settings):
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) == 3  # after the untrained row and two updates

    run = LiveRun(settings).train(should_stop)
    assert [row["update"] for row in run.rows] == [0, 1, 2] and run.result is None
    newest, begun = (next(p.parameters()) for p in (run.last_policy(), run.policy_at(0)))
    assert run.snapshots == [0, 2] and not torch.equal(newest, begun)
    assert "stopped after update 2" in run.status.value
    assert run.picture().sentence


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stopped])
def test_interrupt_keeps_what_there_is(settings, error):
    def interrupt(trainer, row):
        if row["update"] == 1:
            raise error

    run = LiveRun(settings, after_update=interrupt).train()
    assert [row["update"] for row in run.rows] == [0, 1] and run.snapshots == [0, 1]


def test_another_error_is_not_swallowed(settings):
    def broken(trainer, row):
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        LiveRun(settings, after_update=broken).train()


def test_ruined_weights_are_rolled_back_to_what_was_saved_before(settings):
    """The checkpoint is written before anybody is told of the row, so it is whole."""
    seen = {}

    def ruin(trainer, row):
        if row["update"] == 1:
            seen["good"] = [p.detach().clone() for p in trainer.policy.parameters()]
            with torch.no_grad():
                for weights in trainer.policy.parameters():
                    weights.mul_(-3.0)
            trainer.roll_back()
            seen["back"] = [p.detach().clone() for p in trainer.policy.parameters()]

    run = LiveRun(settings, after_update=ruin).train()
    best = run.rows[1]["validation_success"] >= run.rows[0]["validation_success"]
    assert best and all(map(torch.equal, seen["good"], seen["back"]))


def test_wrong_setting_is_refused_with_the_nearest(settings):
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        LiveRun({**settings, "learning_rat": 1e-3})


def test_own_run_follows_the_sliders(settings):
    laboratory = Laboratory(settings)
    laboratory.rate.value, laboratory.temperature.value = 1e-3, 1.3
    laboratory.worker.start()
    assert laboratory.worker.wait(60) and not widgets.ERRORS
    config = laboratory.run.config
    assert (config.ppo.learning_rate, config.sampling.temperature_start) == (1e-3, 1.3)
    assert laboratory.run.result is not None
    assert "Over 12 episodes" in laboratory.worker.status.value


def test_pictures_of_a_run_and_of_arms_say_their_numbers(settings):
    rows = LiveRun(settings).train().rows
    said = entropy_and_kl(rows).sentence
    assert f"{rows[-1]['entropy_per_decision']:.2f} nats" in said
    curve = {"episodes": [0, 4], "validation_success": [None, 0.5]}
    seeds = [{"arm": arm, "seed": 0, "curve": curve} for arm in ("plain", "hot")]
    seeds.append({"arm": "hot", "seed": 1, "curve": {**curve, "validation_success": [0, 1.0]}})
    picture = arms(seeds, {"validation_success": "success (share)"})
    assert picture.sentence == (
        "success (share), mean over seeds at the end: plain 0.50; hot 0.75."
    )


class Interrupted:
    """Interrupts a run when it has so many rows, and once more while it wraps up."""

    def __init__(self, run, rows):
        self.run, self.rows, self.show = run, rows, run._show
        run._show = self

    def __call__(self, status):
        self.show(status)
        if status.startswith("stopped") or len(self.run.rows) == self.rows:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("rows", [1, 2])
def test_stop_pressed_twice_keeps_what_there_is(settings, rows):
    run = LiveRun(settings)
    Interrupted(run, rows)
    run.watch()
    assert len(run.rows) == rows and run.result is None and len(run.snapshots) == rows
    assert run.last("validation_success") == run.rows[-1]["validation_success"]
    assert run.last("policy_tokens") == run.rows[-1].get("policy_tokens", 0.0)


def test_a_stop_before_the_first_row_leaves_an_empty_run(settings, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "start_run", interrupted)
    run = LiveRun(settings)
    run.watch()
    assert run.rows == [] and run.snapshots == [0] and run.ended
    assert run.last("validation_success") == 0.0
    assert "stopped at the start" in run.status.value and run.last_policy()

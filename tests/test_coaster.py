"""Notebook 08: falls, warnings and what went before a fall, on logs worked by hand."""

from __future__ import annotations

import pytest

from agentrl_lab.learner.warmstart import RECIPES
from agentrl_lab.workbook.lessons import coaster
from agentrl_lab.workbook.studies import GRID, grid_name

CALM = [0.2, 0.6, 0.9, 1.0, 1.0, 1.0, 1.0]
FALLING = [0.2, 0.5, 0.6, 0.8, 0.9, 0.1, 0.1]


def row(arm, seed, success, kl, entropy=(9.0, 9.0, 5.0, 5.0, 4.0, 4.0)):
    curve = {
        "episodes": [64 * n for n in range(7)],
        "validation_success": success,
        "kl_old_max": [None, *kl],
        "entropy_per_decision": [None, *entropy],
        **{name: [None, *kl] for name in ("clip_fraction", "grad_norm", "reward_spread")},
    }
    return {"arm": arm, "seed": seed, "test_success": success[-1], "curve": curve}


LOW, HIGH = [0.01] * 6, [0.01, 0.01, 0.5, 0.5, 0.5, 0.5]
ROWS = [
    row("clean", 0, CALM, LOW), row("clean", 1, CALM, LOW),
    row("broken", 0, FALLING, HIGH), row("broken", 1, FALLING, HIGH),
    row("kl_stop", 0, CALM, LOW), row("kl_stop", 1, FALLING, LOW),
    row("rollback", 0, FALLING, LOW), row("rollback", 1, FALLING, LOW),
]  # fmt: skip
OTHERS = [row(arm, seed, CALM, kl) for arm, kl in (("clean", LOW), ("broken", HIGH))
          for seed in (100, 101)]  # fmt: skip


def test_falls_are_counted():
    assert coaster.falls(ROWS, "broken") == [5, 5]
    assert [coaster.count_falls(ROWS, arm) for arm in ("clean", "kl_stop", "rollback")] == [0, 1, 2]


def test_a_cure_may_fall_once_and_keeps_its_success():
    assert not coaster.cured(ROWS, "kl_stop")  # one fall, but 0.55 of the success
    assert not coaster.cured(ROWS, "rollback")
    risen = [r | {"test_success": 1.0} for r in ROWS]
    assert coaster.cured(risen, "kl_stop")
    assert not coaster.cured(risen, "rollback")  # two falls


def test_warnings_by_hand():
    found = coaster.warned(ROWS, OTHERS)
    kl = found["largest KL"]
    assert kl.monitor.line == pytest.approx((0.01 + 0.5) / 2)
    assert (kl.seen.hits, kl.seen.false_alarms) == (2, 0)
    assert kl.notice == 1  # mean of three is above the line after update 4; the fall is at 5
    chapter = found["the chapter's KL of 0.2"]
    assert chapter.notice == 2  # one update above 0.2 is enough: after update 3
    assert found["reward spread falling"].seen.hits == 0  # the spread of broken rises here
    said = coaster.warnings_picture(found).sentence
    assert "largest KL: 2 of 2 caught, 0 of 2 false, +1 updates" in said


def test_the_best_warning_holds_and_comes_first():
    found = coaster.warned(ROWS, OTHERS)
    assert coaster.best_warning(found) == "the chapter's KL of 0.2"  # 2 updates; largest KL: 1
    assert coaster.best_warning({n: found[n] for n in ("entropy falling", "largest KL")}) == (
        "largest KL"
    )


def test_what_went_before_a_fall():
    change, known = coaster.before_fall(ROWS, "broken", "entropy_per_decision")
    assert known == 2 and change.mean == pytest.approx(5.0 - 9.0)  # updates 3, 4 after 1, 2
    early = [row("broken", 0, [0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], LOW)]
    assert coaster.before_fall(early, "broken", "entropy_per_decision") == (None, 0)


def test_a_figure_from_the_first_update_to_the_last_before_the_fall():
    found = coaster.until_fall(ROWS, "broken", "entropy_per_decision")
    assert found == [(9.0, 5.0), (9.0, 5.0)]  # the fall is at 5: update 4
    early = [row("broken", 0, [0.9, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1], LOW)]
    assert coaster.until_fall(early, "broken", "entropy_per_decision") == []


def test_grid_picture_finds_its_run():
    chosen = {name: values[-1] for name, values in GRID.items()}
    other = chosen | {"epochs": 1}
    rows = [row(grid_name(**chosen), 0, FALLING, HIGH), row(grid_name(**other), 0, CALM, LOW)]
    assert coaster.grid_picture(rows, **chosen).sentence == (
        "learning_rate 0.001, epochs 4, clip_ratio 0.3, episodes_per_update 64: best 0.90, last "
        "0.10, largest KL 0.500, a fall after 320 episodes."
    )


def test_runs_of_one_rate_are_taken_together():
    chosen = {name: values[-1] for name, values in GRID.items()}
    slow = grid_name(**chosen | {"learning_rate": 3e-5})
    rows = [
        row(grid_name(**chosen), 0, FALLING, HIGH),
        row(grid_name(**chosen | {"epochs": 1}), 0, CALM, LOW),
        row(slow, 0, CALM, LOW),
    ]
    assert coaster.at_rate(rows, 1e-3) == (pytest.approx((0.1 + 1.0) / 2), 1, 2)
    assert coaster.at_rate(rows, 3e-5) == (1.0, 0, 1)


def test_rate_of_the_warm_up_is_that_of_its_recipe():
    assert RECIPES["tiny-base"].learning_rate == coaster.SFT_RATE

"""Pitfalls as data: arms, seeds that never meet, falls by hand."""

from __future__ import annotations

import pytest

from agentrl_lab.workbook.pitfalls import (
    BROKEN,
    CALIBRATION,
    CLEAN,
    JUDGED,
    PITFALLS,
    fall_of,
    log_of,
)
from agentrl_lab.workbook.studies import GRID, STUDIES, grid_name

ALL = pytest.mark.parametrize("pitfall", PITFALLS.values(), ids=PITFALLS.keys())


MISTAKES = {
    "reward_hacking": {"call_bonus"},
    "leakage": {"policy", "debug_field"},  # the field in demonstrations, and in RL
    "roller_coaster": {"learning_rate", "epochs"},
    "wasted_rollouts": {"policy"},  # nothing to waste where the start is fluent
}


def test_a_line_is_never_judged_on_the_seeds_it_was_made_from():
    assert not set(JUDGED) & set(CALIBRATION)


@ALL
def test_each_pitfall_is_two_studies(pitfall):
    study, calibration = STUDIES[pitfall.name], STUDIES[f"{pitfall.name}_alarm"]
    assert {CLEAN, BROKEN, *pitfall.cures} <= set(study.arms)
    assert set(calibration.arms) == {CLEAN, BROKEN}
    assert (study.seeds, calibration.seeds) == (JUDGED, CALIBRATION)
    assert study.rule == calibration.rule == pitfall.rule
    assert all(study.arms[arm] == calibration.arms[arm] for arm in (CLEAN, BROKEN))


@ALL
def test_broken_differs_from_clean_in_the_mistake_alone(pitfall):
    arms = pitfall.study().arms
    differ = {name for name in arms[BROKEN] if arms[BROKEN][name] != arms[CLEAN].get(name)}
    assert differ == MISTAKES[pitfall.name]


def test_log_of_a_recorded_run():
    row = {"arm": CLEAN, "curve": {"update": [0, 1], "kl": [None, 0.5]}}
    assert log_of(row) == [{"update": 0, "kl": None}, {"update": 1, "kl": 0.5}]


@pytest.mark.parametrize(
    ("success", "fall"),
    [
        ([0.25, 0.875, 0.75, 0.5, 0.5], 3),  # 0.5 is more than 0.25 below 0.875, 0.75 is not
        ([0.875, 0.5, 0.875, 0.5], None),  # one update is no fall, nor is the last
        ([0.875, 0.625, 0.65], None),  # exactly 0.25 is no fall
        ([0.2, 0.1, 0.3], None),
        ([], None),
    ],
)
def test_fall_by_hand(success, fall):
    assert fall_of([{"validation_success": v} for v in success], drop=0.25) == fall


def test_leakage_is_read_off_what_swapping_costs():
    row = {"test_success": 1.0, "elsewhere": {"undeclared": {"success": 0.25}}}
    assert PITFALLS["leakage"].log(row) == [{"success_lost": 0.75}]


def test_the_grid_holds_every_combination_once():
    arms = STUDIES["roller_coaster_grid"].arms
    assert len(arms) == 4 * 3 * 3 * 2 >= 60
    assert len({tuple(sorted(settings.items())) for settings in arms.values()}) == len(arms)
    named = "learning_rate 0.001, epochs 4, clip_ratio 0.15, episodes_per_update 32"
    assert grid_name(**{name: arms[named][name] for name in GRID}) == named

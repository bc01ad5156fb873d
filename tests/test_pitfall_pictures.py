"""Pictures of the pitfalls: what is hidden stays hidden, and the sentence says what is drawn."""

from __future__ import annotations

import pytest

from agentrl_lab.learner.monitors import Monitor
from agentrl_lab.workbook.lessons.pitfall_pictures import alarm_picture, bug_hunt


def row(arm, seed, success, repeats):
    curve = {
        "episodes": [0, 64, 128, 192, 256],
        "validation_success": [0.25, 0.5, 1.0, success, success],
        "reward_per_episode": [None, 0.5, 0.75, 1.0, 1.0],
        "repeats_per_episode": [None, *repeats],
    }
    return {"arm": arm, "seed": seed, "curve": curve}


ROWS = [
    row("clean", 0, 1.0, (0, 0, 0, 0)), row("clean", 1, 0.9, (0, 0, 0, 0)),
    row("broken", 0, 0.1, (1, 2, 3, 3)), row("broken", 1, 0.2, (2, 2, 4, 4)),
]  # fmt: skip
REWARD = {"reward_per_episode": "reward of an episode"}
SUCCESS = {"validation_success": "validation success (share)"}


def test_bug_hunt_hides_success_until_it_is_revealed():
    hidden, shown = (
        bug_hunt(ROWS, 0, REWARD, SUCCESS, reveal=reveal).sentence for reveal in (False, True)
    )
    assert "success" not in hidden and "reward of an episode of B ends at 1.00" in hidden
    assert "validation success (share) of B ends at 0.10" in shown


def test_alarm_and_fall_stand_in_the_picture():
    monitor = Monitor("repeats_per_episode", window=2, line=1.25)
    said = alarm_picture(monitor, ROWS, 0).sentence
    assert said == (
        "Line at 1.2. clean: highest 0.00, no alarm, no fall; "
        "broken: highest 3.00, alarm after 128 episodes, fall after 192."
    )


def test_an_arm_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="did you mean 'broken'"):
        bug_hunt(ROWS, 0, REWARD, SUCCESS, reveal=True, arms=("clean", "brokn"))

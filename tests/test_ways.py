"""Notebook 10: the pairs of the review, and a policy by temperature."""

from __future__ import annotations

import pytest

from agentrl_lab.learner.policy import load_policy
from agentrl_lab.workbook.lessons import ways

ROW = {
    "elsewhere": {
        "unseen at 0.0": {"success": 0.9}, "unseen at 0.3": {"evasive_rate": 0.5},
        "unseen at 0.7": {"evasive_rate": 0.2},
    }
}  # fmt: skip


def test_figures_of_a_row():
    assert ways.unseen(ROW) == 0.9
    assert ways.shift("evasive_rate", 0.3, 0.7)(ROW) == pytest.approx(0.3)


@pytest.mark.slow
def test_review_pairs_flattery_with_work(tmp_path):
    review = ways.blind_review(range(6), tmp_path / "review.jsonl")
    rewards = [
        [side.trajectory.reward for side in (pair.first, pair.second)] for pair in review.open
    ]
    assert len(rewards) == 6 and sum(useful > flattering for flattering, useful in rewards) >= 3


@pytest.mark.slow
def test_temperatures_are_told_apart(small_policy):
    seen = ways.by_temperature(load_policy(str(small_policy)), 4, "unseen")
    assert list(seen) == [0.3, 0.7, 1.0, 1.3]
    said = ways.temperature_picture({"untrained": seen}).sentence
    assert said.startswith("From temperature 0.3 to 1.3, untrained: success 0.00 to 0.00")

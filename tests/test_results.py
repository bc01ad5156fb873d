"""Recorded results belong to the studies as they are written: same rule, same arms, every run."""

from __future__ import annotations

import itertools
import json

import pytest

from agentrl_lab.config import data_dir
from agentrl_lab.workbook.studies import STUDIES

FILES = sorted((data_dir() / "results").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_recorded_results_are_those_of_the_study(file):
    recorded, study = json.loads(file.read_text(encoding="utf-8")), STUDIES[file.stem]
    assert recorded["question"] == study.question
    assert recorded["rule"] == study.rule, "a rule may not change after its runs"
    assert recorded["arms"] == {arm: dict(settings) for arm, settings in study.arms.items()}
    assert recorded["seeds"] == list(study.seeds)
    cells = [(row["arm"], row["seed"]) for row in recorded["rows"]]
    assert sorted(cells) == sorted(itertools.product(study.arms, study.seeds))
    for row in recorded["rows"]:
        assert 0 <= row["test_success"] <= 1
        assert set(row["elsewhere"]) == set(study.elsewhere) if study.elsewhere else True

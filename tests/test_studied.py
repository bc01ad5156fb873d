"""Words and figures that the notebooks of the pitfalls share."""

from __future__ import annotations

import pytest

from agentrl_lab.learner.experiments import Difference
from agentrl_lab.workbook.lessons.studied import in_words, keeps, told, verdict

ROWS = [
    {"arm": arm, "seed": seed, "test_success": success}
    for arm, values in {"clean": (1.0, 0.9), "enough": (0.8, 0.92), "less": (0.8, 0.9)}.items()
    for seed, success in enumerate(values)
]


def test_a_cure_keeps_nine_tenths():
    assert keeps(ROWS, "enough")  # 0.86 of 0.95 is more than 0.9
    assert not keeps(ROWS, "less")  # 0.85 is less


@pytest.mark.parametrize(
    ("confirmed", "refuted", "word"),
    [(True, False, "confirmed"), (False, True, "refuted"), (False, False, "inconclusive")],
)
def test_verdict(confirmed, refuted, word):
    assert verdict(confirmed, refuted) == word


@pytest.mark.parametrize(("value", "word"), [(0.5, "few"), (1, "some"), (2.5, "many")])
def test_a_word_for_a_value(value, word):
    assert in_words(value, {1: "few", 2: "some", float("inf"): "many"}) == word


def test_told_has_sign_and_interval(capsys):
    told("rl minus mixed", Difference(0.125, -0.25, 0.5, 0.1, 10))
    assert capsys.readouterr().out == "rl minus mixed: +0.12 (95%: -0.25 to +0.50)\n"

"""What the notebooks of the pitfalls say of a study in the same words: figures, verdicts, cures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentrl_lab.learner.experiments import Difference, Row, averaged
from agentrl_lab.workbook.pitfalls import CLEAN

SUCCESS_AT_LEAST = 0.9
"""Share of the success of clean that a cure keeps."""


def success(row: Row) -> float:
    """Greedy success on the test tasks, after training."""
    return row["test_success"]


def keeps(rows: Sequence[Row], arm: str) -> bool:
    """Whether an arm keeps 0.9 of the mean success of clean."""
    own, clean = (averaged(rows, name, success).mean for name in (arm, CLEAN))
    return own >= SUCCESS_AT_LEAST * clean


def verdict(confirmed: bool, refuted: bool) -> str:
    """The word for what a rule decided."""
    return "confirmed" if confirmed else "refuted" if refuted else "inconclusive"


def in_words(value: float, words: Mapping[float, str]) -> str:
    """The word of the first limit, smallest first, that a value lies below."""
    return next(word for limit, word in words.items() if value < limit)


def told(what: str, found: Difference, *, places: int = 2) -> None:
    """Prints a figure with its interval."""
    mean, low, high = (f"{x:+,.{places}f}" for x in (found.mean, found.low, found.high))
    print(f"{what}: {mean} (95%: {low} to {high})")

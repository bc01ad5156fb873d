"""What notebook 08 stands on: a recorded grid, falls, warnings and their notice, cures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from agentrl_lab.learner.experiments import (
    Difference,
    Row,
    by_seed,
    paired,
)
from agentrl_lab.learner.monitors import Judgement, Monitor, calibrated, judged
from agentrl_lab.workbook.lessons.studied import keeps
from agentrl_lab.workbook.pitfalls import BROKEN, CLEAN, fall_of, log_of
from agentrl_lab.workbook.plots import BLUE, GREY, ORANGE, RED, Picture, tidy
from agentrl_lab.workbook.studies import grid_name

FALLS_AT_MOST = 1
HALF_A_WINDOW = 2
"""Updates that are compared with as many before them, to see which way a figure went."""
CHAPTER = Monitor("kl_old_max", window=1, line=0.2)
WARNINGS: Mapping[str, Monitor] = {
    "largest KL": Monitor("kl_old_max"),
    "entropy rising": Monitor("entropy_per_decision"),
    "entropy falling": Monitor("entropy_per_decision", falling=True),
    "clip fraction": Monitor("clip_fraction"),
    "gradient norm": Monitor("grad_norm"),
    "reward spread falling": Monitor("reward_spread", falling=True),
}


def falls(rows: Sequence[Row], arm: str) -> list[int | None]:
    """For each run of an arm the place of its fall; None where it never fell."""
    return [fall_of(log) for log in by_seed(rows, arm, log_of)]


def count_falls(rows: Sequence[Row], arm: str) -> int:
    """How many runs of an arm fell."""
    return sum(fall is not None for fall in falls(rows, arm))


def cured(rows: Sequence[Row], arm: str) -> bool:
    """Whether an arm keeps 0.9 of the success of clean, and at most one of its runs falls."""
    return keeps(rows, arm) and count_falls(rows, arm) <= FALLS_AT_MOST


# Warnings


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning with the line it got from other runs, and how it did on these."""

    monitor: Monitor
    seen: Judgement

    @property
    def notice(self) -> float | None:
        """Median updates from the alarm to the fall, over the runs that were caught and fell."""
        return statistics.median(self.seen.notice) if self.seen.notice else None


def warned(
    rows: Sequence[Row], others: Sequence[Row], healthy: Sequence[str] = (CLEAN,)
) -> dict[str, Warned]:
    """Every warning: its line made from other runs, judged on these.

    Args:
        rows: of the study.
        others: of the calibration, whose seeds are others.
        healthy: arms that must not fire.
    """
    calm, wild = (by_seed(others, arm, log_of) for arm in (CLEAN, BROKEN))
    lined = {name: calibrated(monitor, calm, wild) for name, monitor in WARNINGS.items()}
    lined["the chapter's KL of 0.2"] = CHAPTER
    well = [log for arm in healthy for log in by_seed(rows, arm, log_of)]
    spoiled = by_seed(rows, BROKEN, log_of)
    return {
        name: Warned(monitor, judged(monitor, well, spoiled, falls(rows, BROKEN)))
        for name, monitor in lined.items()
    }


def best_warning(found: Mapping[str, Warned]) -> str:
    """The warning that holds with the most notice; of none that holds, the one with most hits."""
    return max(found, key=lambda name: (
        found[name].seen.holds, found[name].notice or 0, found[name].seen.hits
    ))  # fmt: skip


def warnings_picture(found: Mapping[str, Warned]) -> Picture:
    """Hits and false alarms of each warning, as shares, with its notice beside them."""
    figure = Figure(figsize=(9.0, 1.2 + 0.5 * len(found)), layout="constrained")
    axes, told = figure.subplots(), []
    for place, (name, warning) in enumerate(found.items()):
        seen = warning.seen
        axes.barh(place - 0.18, seen.hits / seen.broken, 0.34, color=BLUE)
        axes.barh(place + 0.18, seen.false_alarms / seen.healthy, 0.34, color=RED, hatch="//")
        ahead = "no fall to compare" if warning.notice is None else f"{warning.notice:+g} updates"
        axes.text(1.02, place, ahead, va="center", color=GREY)
        told.append(
            f"{name}: {seen.hits} of {seen.broken} caught, {seen.false_alarms} of {seen.healthy} "
            f"false, {ahead}"
        )
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.25), xlabel="share of runs: caught (plain) and false alarms (hatched)")
    tidy(axes, grid=None)
    return Picture(figure, "; ".join(told) + ".")


def before_fall(rows: Sequence[Row], arm: str, metric: str) -> tuple[Difference | None, int]:
    """Which way a figure went before success fell: (its change, in how many runs it is known).

        mean(x[f-2], x[f-1]) - mean(x[f-4], x[f-3]),  f the place of the fall

    The change is None where fewer than two runs have it.
    """
    pairs = []
    for log, fall in zip(by_seed(rows, arm, log_of), falls(rows, arm), strict=True):
        before = [row[metric] for row in log[:fall]][-2 * HALF_A_WINDOW :] if fall else []
        if len(before) == 2 * HALF_A_WINDOW and None not in before:
            late, early = before[HALF_A_WINDOW:], before[:HALF_A_WINDOW]
            pairs.append((statistics.mean(late), statistics.mean(early)))
    known = len(pairs)
    return (paired(*zip(*pairs, strict=True)) if known >= 2 else None), known


def until_fall(rows: Sequence[Row], arm: str, metric: str) -> list[tuple[float, float]]:
    """(a figure after the first update, the same at the last one before the fall), by run."""
    logs = zip(by_seed(rows, arm, log_of), falls(rows, arm), strict=True)
    return [(log[1][metric], log[fall - 1][metric]) for log, fall in logs if fall and fall > 2]


# The grid

SFT_RATE = 1e-3
"""Learning rate of the warm-up that made tiny-base (F3 speaks of a tenth of it)."""


class AtRate(NamedTuple):
    """What the runs of one learning rate came to."""

    last: float
    """Mean validation success at the end."""
    fell: int
    n: int


def at_rate(rows: Sequence[Row], rate: float) -> AtRate:
    """All runs of the grid at one learning rate."""
    logs = [log_of(row) for row in rows if row["arm"].startswith(f"learning_rate {rate:g}, ")]
    last = statistics.mean(log[-1]["validation_success"] for log in logs)
    return AtRate(last, sum(fall_of(log) is not None for log in logs), len(logs))


FLOOR = {"validation_success": 0.0, "kl_old_max": 1e-6}
"""Smaller values are drawn there: an update of one step measures its KL before it, about 1e-14."""


def grid_picture(rows: Sequence[Row], **chosen: float) -> Picture:
    """Success and KL of one setting of the grid, all the others thin behind it."""
    wanted = grid_name(**chosen)
    own = next(row for row in rows if row["arm"] == wanted)
    figure = Figure(figsize=(9.2, 3.8))
    figure.subplots_adjust(0.07, 0.14, 0.98, 0.91, wspace=0.18)  # finding it takes long
    panels = {"validation_success": "validation success", "kl_old_max": "largest KL, or 1e-6"}
    for axes, (metric, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        others = [_points(row, metric) for row in rows]
        axes.add_collection(LineCollection(others, colors=GREY, linewidths=0.5, alpha=0.3))
        axes.plot(*zip(*_points(own, metric), strict=True), color=ORANGE, linewidth=2.5)
        axes.set(xlabel="episodes", title=label)
        tidy(axes)
    figure.axes[1].set_yscale("log")
    log = log_of(own)
    best, last = max(row["validation_success"] for row in log), log[-1]["validation_success"]
    kl = max(row["kl_old_max"] or 0.0 for row in log)
    fall = fall_of(log)
    ending = "no fall" if fall is None else f"a fall after {log[fall]['episodes']} episodes"
    said = f"{wanted}: best {best:.2f}, last {last:.2f}, largest KL {kl:.3f}, {ending}."
    return Picture(figure, said)


def _points(row: Row, metric: str) -> list[tuple[float, float]]:
    curve = row["curve"]
    pairs = zip(curve["episodes"], curve[metric], strict=True)
    return [(at, max(value, FLOOR[metric])) for at, value in pairs if value is not None]

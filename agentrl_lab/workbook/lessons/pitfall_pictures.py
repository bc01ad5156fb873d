"""Pictures that the notebooks of the pitfalls share: a guess from curves, an alarm and its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from agentrl_lab.learner.experiments import Row, by_seed
from agentrl_lab.learner.monitors import Monitor, Rows
from agentrl_lab.workbook.pitfalls import BROKEN, CLEAN, fall_of, log_of
from agentrl_lab.workbook.plots import BLUE, GREY, ORANGE, RED, Picture, tidy

LOOKS = ((BLUE, "-", "bottom"), (ORANGE, "--", "top"))
"""Colour, line, and where the name stands at its end: two that end alike can both be read."""


def logs_of(rows: Sequence[Row], seed: int, arms: Sequence[str]) -> dict[str, Rows]:
    """The metrics of one seed in some arms."""
    own = [row for row in rows if row["seed"] == seed]
    return {arm: by_seed(own, arm, log_of)[0] for arm in arms}


def bug_hunt(
    rows: Sequence[Row], seed: int, shown: Mapping[str, str], hidden: Mapping[str, str], *,
    reveal: bool, arms: tuple[str, str] = (CLEAN, BROKEN),
) -> Picture:  # fmt: skip
    """Two runs of one seed, called A and B: some figures at once, others only when revealed.

    Args:
        rows: of a study.
        seed: which runs.
        shown: metric -> label of the panels that are there from the start.
        hidden: the same, of those that are not.
        reveal: whether to show them.
        arms: which one is A, which one B.
    """
    logs = dict(zip("AB", logs_of(rows, seed, arms).values(), strict=True))
    figure = Figure(figsize=(4.6 * (len(shown) + len(hidden)), 3.6), layout="constrained")
    panels, told = figure.subplots(1, len(shown) + len(hidden), squeeze=False)[0], []
    for axes, (metric, label) in zip(panels, {**shown, **hidden}.items(), strict=True):
        if metric in hidden and not reveal:
            axes.axis("off")
            axes.text(0.5, 0.5, "one more figure: not shown yet", ha="center", color=GREY)
            continue
        for (name, log), look in zip(logs.items(), LOOKS, strict=True):
            end = _curve(axes, log, metric, name, *look)
            told.append(f"{label} of {name} ends at {end:,.{2 if abs(end) < 100 else 0}f}")
        axes.set(xlabel="episodes", title=label)
    return Picture(figure, "; ".join(told) + ".")


def _curve(
    axes: Any, log: Rows, metric: str, name: str, colour: str, style: str, side: str
) -> float:
    """Draws a metric with its name at the end; where it ends."""
    points = [(row["episodes"], row[metric]) for row in log if row[metric] is not None]
    axes.plot(*zip(*points, strict=True), style, color=colour, linewidth=2)
    axes.annotate(f" {name}", points[-1], color=colour, fontweight="bold", va=side)
    tidy(axes)
    return points[-1][1]


def alarm_picture(
    monitor: Monitor, rows: Sequence[Row], seed: int, arms: tuple[str, str] = (CLEAN, BROKEN)
) -> Picture:
    """The level of a monitor in two runs, its line, its alarm, and the fall of success.

    Args:
        monitor: with its line.
        rows: of a study.
        seed: which runs.
        arms: which arms.
    """
    figure, told = Figure(figsize=(8.0, 4.6)), []
    figure.subplots_adjust(0.09, 0.11, 0.9, 0.96, hspace=0.14)  # to find it out takes as long again
    top, bottom = figure.subplots(2, 1, sharex=True)
    for (arm, log), look in zip(logs_of(rows, seed, arms).items(), LOOKS, strict=True):
        _curve(top, log, "validation_success", arm, *look)
        levels = [
            {"episodes": row["episodes"], "level": level}
            for row, level in zip(log, monitor.levels(log), strict=True)
        ]
        _curve(bottom, levels, "level", arm, *look)
        told.append(f"{arm}: {_alarm(bottom, monitor, log, levels)}")
    bottom.axhline(monitor.line, color=GREY, linestyle=":")
    top.set(ylabel="validation success", ylim=(0, 1.05))
    bottom.set(xlabel="episodes", ylabel=monitor.metric.replace("_", " "))
    return Picture(figure, f"Line at {monitor.line:.2g}. " + "; ".join(told) + ".")


def _alarm(axes: Any, monitor: Monitor, log: Rows, levels: Rows) -> str:
    """Marks the alarm of a run; in words when it came, and when success fell."""
    at, fall = monitor.alarm(log), fall_of(log)
    if at is not None:
        place = levels[at]["episodes"], levels[at]["level"]
        axes.plot(*place, "v", color=RED, markersize=9)
        offset = {"xytext": (-9, 0), "textcoords": "offset points"}
        axes.annotate("alarm", place, ha="right", va="center", color=RED, **offset)
    alarm = "no alarm" if at is None else f"alarm after {log[at]['episodes']} episodes"
    falls = f"fall after {log[fall]['episodes']}" if fall else "no fall"
    return f"highest {monitor.peak(log):.2f}, {alarm}, {falls}"

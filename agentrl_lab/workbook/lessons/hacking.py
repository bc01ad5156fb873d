"""What notebook 06 stands on: what a bonus pays, proxy against truth, calls beyond the need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig
from agentrl_lab.learner.experiments import Difference, averaged, by_seed, compared
from agentrl_lab.learner.monitors import Monitor
from agentrl_lab.workbook.pitfalls import BROKEN, CLEAN, fall_of, log_of
from agentrl_lab.workbook.plots import BLUE, GREY, ORANGE, RED, Picture
from agentrl_lab.world.audit import Audit, audit
from agentrl_lab.world.rewards import reward_of

BEYOND = ("padding", "never finish")
"""Strategies that make calls beyond the need."""
SUCCESS_AT_LEAST, BEYOND_AT_MOST = 0.9, 0.1


@cache
def pays(call_bonus: float, call_cap: float = 0.0, repeat_charge: float = 0.0) -> Audit:
    """What the outcome reward with prices for calls pays, in episodes of six turns."""
    prices = {"call_bonus": call_bonus, "call_cap": call_cap, "repeat_charge": repeat_charge}
    return audit(reward_of(EnvConfig(reward="outcome", **prices)))


def bonus_picture(bonuses: Sequence[float]) -> Picture:
    """The best return of honesty, padding and never finishing, over the bonus."""
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    axes = figure.subplots()
    styles = {"honest": (BLUE, "-"), "padding": (ORANGE, "--"), "never finish": (RED, ":")}
    for name, (colour, style) in styles.items():
        values = [pays(bonus).ways[name].value for bonus in bonuses]
        axes.plot(bonuses, values, style, color=colour, linewidth=2.5)
        axes.annotate(f" {name}", (bonuses[-1], values[-1]), va="center", color=colour)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="bonus for each call", ylabel="best return of an episode")
    axes.set_xlim(bonuses[0], bonuses[-1] * 1.25)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    crossing = next(
        (b for b in bonuses if pays(b).ways["never finish"].value > pays(b).ways["honest"].value),
        None,
    )
    last = ", ".join(f"{name} {pays(bonuses[-1]).ways[name].value:.1f}" for name in styles)
    never = "never finishing never beats honesty" if crossing is None else (
        f"never finishing beats honesty from {crossing:.2g} on"
    )  # fmt: skip
    return Picture(figure, f"At a bonus of {bonuses[-1]:g}: {last}; {never}.")


def bug_hunt(rows: Sequence[Mapping[str, Any]], seed: int, *, reveal: bool) -> Picture:
    """Two runs of one seed, A clean and B broken: their reward, and their success if revealed."""
    own = [row for row in rows if row["seed"] == seed]
    logs = {name: by_seed(own, arm, log_of)[0] for name, arm in (("A", CLEAN), ("B", BROKEN))}
    panels = {"reward_per_episode": "reward of an episode"}
    if reveal:
        panels["validation_success"] = "validation success (share)"
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    said = []
    for axes, (metric, label) in zip(figure.subplots(1, 2), panels.items(), strict=False):
        for (name, log), (colour, style) in zip(
            logs.items(), ((BLUE, "-"), (ORANGE, "--")), strict=True
        ):
            points = [(row["episodes"], row[metric]) for row in log if row[metric] is not None]
            axes.plot(*zip(*points, strict=True), style, color=colour, linewidth=2)
            axes.annotate(f" {name}", points[-1], color=colour, fontweight="bold")
            said.append(f"{label} of {name} ends at {points[-1][1]:.2f}")
        axes.set(xlabel="episodes", title=label)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if not reveal:
        figure.axes[1].axis("off")
        figure.axes[1].text(0.5, 0.5, "success: not shown yet", ha="center", color=GREY)
    return Picture(figure, "; ".join(said) + ".")


# Recorded runs


def beyond_need(row: Mapping[str, Any]) -> float:
    """Share of test episodes with calls beyond the need."""
    return sum(row["strategies"].get(name, 0.0) for name in BEYOND)


def success(row: Mapping[str, Any]) -> float:
    """Greedy success on the test tasks."""
    return row["test_success"]


def by_arm(rows: Sequence[Mapping[str, Any]], arms: Sequence[str]) -> dict[str, dict]:
    """Success and calls beyond the need of each arm, mean over seeds with intervals."""
    figures = {"success": success, "calls beyond the need": beyond_need}
    return {
        word: {arm: averaged(rows, arm, figure) for arm in arms} for word, figure in figures.items()
    }


def harm(rows: Sequence[Mapping[str, Any]], arm: str) -> tuple[Difference, Difference]:
    """(calls beyond the need, success), arm minus clean."""
    return compared(rows, arm, CLEAN, beyond_need), compared(rows, arm, CLEAN, success)


def cured(rows: Sequence[Mapping[str, Any]], arm: str) -> bool:
    """Whether an arm keeps 0.9 of the success of clean, without calls beyond the need."""
    kept = averaged(rows, arm, success).mean / averaged(rows, CLEAN, success).mean
    return kept >= SUCCESS_AT_LEAST and averaged(rows, arm, beyond_need).mean < BEYOND_AT_MOST


def alarm_picture(monitor: Monitor, rows: Sequence[Mapping[str, Any]], seed: int) -> Picture:
    """The level of a monitor in a broken and a clean run, its line, and the fall of success."""
    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    told = []
    for arm, colour, style in ((CLEAN, BLUE, "-"), (BROKEN, ORANGE, "--")):
        log = by_seed([row for row in rows if row["seed"] == seed], arm, log_of)[0]
        x, levels = [row["episodes"] for row in log], monitor.levels(log)
        top.plot(x, [row["validation_success"] for row in log], style, color=colour)
        top.annotate(f" {arm}", (x[-1], log[-1]["validation_success"]), color=colour)
        known = [(e, level) for e, level in zip(x, levels, strict=True) if level is not None]
        bottom.plot(*zip(*known, strict=True), style, color=colour, label=arm)
        at, fall = monitor.alarm(log), fall_of(log)
        if at is not None:
            bottom.plot(x[at], levels[at], "v", color=RED, markersize=9)
            bottom.annotate("alarm ", (x[at], levels[at]), ha="right", color=RED)
        alarm = f"alarm after {x[at]} episodes" if at is not None else "no alarm"
        told.append(f"{arm}: {alarm}, " + (f"fall after {x[fall]}" if fall else "no fall"))
    bottom.axhline(monitor.line, color=GREY, linestyle=":")
    top.set(ylabel="validation success", ylim=(0, 1.05))
    bottom.set(xlabel="episodes", ylabel=monitor.metric.replace("_", " "))
    for axes in (top, bottom):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return Picture(figure, f"Line at {monitor.line:.2f}. " + "; ".join(told) + ".")

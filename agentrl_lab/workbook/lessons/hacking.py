"""What notebook 06 stands on: what a bonus pays, and calls beyond the need in recorded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig
from agentrl_lab.learner.experiments import Difference, Row, averaged, compared
from agentrl_lab.workbook.lessons.studied import keeps, success
from agentrl_lab.workbook.pitfalls import BROKEN, CLEAN, log_of
from agentrl_lab.workbook.plots import BLUE, GREY, ORANGE, RED, Picture, tidy
from agentrl_lab.world.audit import Audit, audit
from agentrl_lab.world.rewards import reward_of

Look = tuple[str, str]
"""Colour and style of a line."""
BEYOND = ("padding", "never finish")
"""Strategies that make calls beyond the need."""
BEYOND_AT_MOST = 0.1


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
    tidy(axes)
    crossing = next(
        (b for b in bonuses if pays(b).ways["never finish"].value > pays(b).ways["honest"].value),
        None,
    )
    last = ", ".join(f"{name} {pays(bonuses[-1]).ways[name].value:.1f}" for name in styles)
    never = "never finishing never beats honesty" if crossing is None else (
        f"never finishing beats honesty from {crossing:.2g} on"
    )  # fmt: skip
    return Picture(figure, f"At a bonus of {bonuses[-1]:g}: {last}; {never}.")


# Recorded runs

BONUS_OF = {CLEAN: 0.0, "tenfold": 1 / 60, "chapter": 0.1, BROKEN: 1.0}
"""Arms of the study that differ in their bonus alone."""


def by_bonus(study: Sequence[Row], more: Sequence[Row]) -> dict[float, list[Row]]:
    """Recorded runs by their bonus, smallest first: the seeds that all bonuses have.

    Args:
        study: rows of reward_hacking.
        more: rows of reward_hacking_bonus, whose arms are called by their bonus.
    """
    found: dict[float, list[Row]] = {float(row["arm"]): [] for row in more}
    for row in more:
        found[float(row["arm"])].append(row)
    for arm, bonus in BONUS_OF.items():
        found[bonus] = [row for row in study if row["arm"] == arm]
    shared = set.intersection(*({row["seed"] for row in rows} for rows in found.values() if rows))
    return {
        bonus: [row for row in found[bonus] if row["seed"] in shared]
        for bonus in sorted(found) if found[bonus]
    }  # fmt: skip


def growth_picture(found: Mapping[float, Sequence[Row]], bonus: float) -> Picture:
    """Reward and success over the training at one bonus, and where they end at every bonus."""
    figure = Figure(figsize=(9.4, 3.8))
    figure.subplots_adjust(0.05, 0.14, 0.98, 0.91, wspace=0.16)  # as in learning_curve
    over_time, over_bonus = figure.subplots(1, 2)
    # the untrained policy, first of each log, has no reward yet
    updates = list(zip(*(log_of(row)[1:] for row in found[bonus]), strict=True))
    episodes = [rows[0]["episodes"] for rows in updates]
    reward = [_mean(rows, "reward_per_episode") for rows in updates]
    solved = [_mean(rows, "validation_success") for rows in updates]
    _line(over_time, episodes, reward, "reward (proxy)", (ORANGE, "--"))
    _line(over_time, episodes, solved, "success (truth)", (BLUE, "-"))
    ends, chosen = f"reward ends at {reward[-1]:.2f}", list(found).index(bonus)
    for label, figure_of, look in (
        ("success", success, (BLUE, "-")), ("calls beyond the need", beyond_need, (RED, ":")),
    ):  # fmt: skip
        values = [sum(map(figure_of, rows)) / len(rows) for rows in found.values()]
        _line(over_bonus, list(found), values, label, look)
        over_bonus.plot(bonus, values[chosen], "o", color=look[0], markersize=9)
        ends += f", {label} {values[chosen]:.2f}"
    seeds = len(found[bonus])
    over_time.set(xlabel="episodes", title=f"a bonus of {bonus:.2g}, mean of {seeds} seeds")
    over_bonus.set(xlabel="bonus for each call", title="share of test tasks, after training")
    return Picture(figure, f"At a bonus of {bonus:.2g}: {ends}.")


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def _line(axes: Any, x: Sequence[float], y: Sequence[float], label: str, look: Look) -> None:
    axes.plot(x, y, look[1], color=look[0], label=label, linewidth=2.5)
    axes.legend(frameon=False, fontsize=9, handlelength=3)
    tidy(axes)


def beyond_need(row: Row) -> float:
    """Share of test episodes with calls beyond the need."""
    return sum(row["strategies"].get(name, 0.0) for name in BEYOND)


def by_arm(rows: Sequence[Row], arms: Sequence[str]) -> dict[str, dict]:
    """Success and calls beyond the need of each arm, mean over seeds with intervals."""
    figures = {"success": success, "calls beyond the need": beyond_need}
    return {
        word: {arm: averaged(rows, arm, figure) for arm in arms} for word, figure in figures.items()
    }


def harm(rows: Sequence[Row], arm: str) -> tuple[Difference, Difference]:
    """(calls beyond the need, success), arm minus clean."""
    return compared(rows, arm, CLEAN, beyond_need), compared(rows, arm, CLEAN, success)


def cured(rows: Sequence[Row], arm: str) -> bool:
    """Whether an arm keeps 0.9 of the success of clean, without calls beyond the need."""
    return keeps(rows, arm) and averaged(rows, arm, beyond_need).mean < BEYOND_AT_MOST

"""Rewards to be moved by hand, what each pays to whom, and what training made of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from agentrl_lab.config import nearest
from agentrl_lab.records import ConclusionKind, StopReason
from agentrl_lab.workbook.plots import BLUE, GREEN, GREY, ORANGE, RED, Picture, tidy
from agentrl_lab.world.audit import STRATEGIES, TOLERANCE, Audit, audit, example
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.plans import Plan, Strategy
from agentrl_lab.world.rewards import RewardSpec, RewardTerm, call_terms

TURNS = 4
"""Turns of an episode here: one more than any task needs, so that padding has room."""
NO_CAP = 2.0
LIE = Strategy("lie", "claims a closure that did not happen", ends=lambda o: o.fabricated)
WAYS = (*STRATEGIES, LIE)
LIMITS = {
    "per_call": (0.0, 0.5), "call_cap": (0.05, NO_CAP), "repeat_cost": (0.0, 0.5),
    "pleasing": (0.0, 2.0), "wrong_reply": (-1.0, 0.0), "strikes": (-1.5, 0.0),
}  # fmt: skip


# Rewards


def edited(
    per_call: float = 0.0,
    call_cap: float = NO_CAP,
    repeat_cost: float = 0.0,
    pleasing: float = 0.0,
    wrong_reply: float = -0.8,
    strikes: float = -1.0,
) -> RewardSpec:
    """The outcome reward (D1) with additions: +1 for a success, -1 at the step limit, and

    Args:
        per_call: paid for each call that the desk answered (F1).
        call_cap: most that all calls of an episode can bring.
        repeat_cost: charged for each repeated call that changed nothing (D4).
        pleasing: paid for a last reply that says "closed", true or not.
        wrong_reply: instead of +1, when the last reply or the ticket is wrong.
        strikes: instead of +1, when three invalid actions ended the episode (F4).

    Raises:
        ValueError: a number is not finite or outside of LIMITS.
    """
    _check(dict(locals()))

    def outcome(seen: EpisodeOutcome) -> float:
        if seen.stop is None or seen.success:
            return float(seen.success)
        ends = {StopReason.REPLIED: wrong_reply, StopReason.THREE_STRIKES: strikes}
        return ends.get(seen.stop, -1.0)

    return RewardSpec(
        "edited",
        (
            RewardTerm("outcome", 1.0, outcome),
            *call_terms(per_call, call_cap, repeat_cost),
            RewardTerm("pleasing", pleasing, _says_closed, process=True),
        ),
    )


def edited_from(settings: Any) -> RewardSpec:
    """The reward of a dictionary of settings.

    Raises:
        ValueError: it is none, or a name or a value is not one of `edited`.
    """
    if not isinstance(settings, Mapping):
        raise ValueError(f"expected a dictionary such as {{'per_call': 0.1}}, got {settings!r:.60}")
    for name in settings.keys() - inspect.signature(edited).parameters.keys():
        raise ValueError(f"no part of the reward is called {name!r}: {nearest(str(name), LIMITS)}")
    return edited(**settings)


def _check(settings: Mapping[str, float]) -> None:
    for name, value in settings.items():
        low, high = LIMITS[name]
        if not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r:.60}")


def _says_closed(seen: EpisodeOutcome) -> float:
    return float(seen.conclusion is not None and seen.conclusion.kind is ConclusionKind.CLOSED)


Potential = Callable[[EpisodeOutcome], float]


def with_potential(
    spec: RewardSpec, potential: Potential, *, given_back: bool = True
) -> RewardSpec:
    """The reward plus potential(after) - potential(before) each turn.

    Args:
        spec: what is paid already.
        potential: how promising the episode so far is, in reward units.
        given_back: the end of an episode has potential 0; without it the last one is kept.

    Source: Ng, Harada and Russell 1999, Policy invariance under reward transformations.
    """

    def so_far(seen: EpisodeOutcome) -> float:
        return 0.0 if given_back and seen.stop is not None else potential(seen)

    return RewardSpec("with potential", (*spec.terms, RewardTerm("potential", 1.0, so_far)))


# What they pay


def pays(spec: RewardSpec) -> Audit:
    """The best return of all, and of each strategy, in episodes of at most TURNS turns."""
    return audit(spec, strategies=WAYS, max_turns=TURNS)


def lies(plan: Plan) -> float:
    """Share of tasks in which a plan claims a closure that did not happen."""
    return sum(play.share for play in plan.plays if play.outcome.fabricated)


def pay_picture(found: Audit) -> Picture:
    """The best return of each strategy as a bar; the honest one is the line to compare with."""
    plans = {"best of all": found.best, **found.ways}
    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    axes, honest = figure.subplots(), found.ways["honest"].value
    for row, (name, plan) in enumerate(plans.items()):
        if not math.isfinite(plan.value):
            axes.text(0, row, " cannot be played", va="center", fontsize=9, color=GREY)
            continue
        colour = _colour(name, plan.value - honest)
        axes.barh(row, plan.value, color=colour, hatch="//" if colour == RED else None, height=0.6)
        text = f" {plan.value:+.2f}, solves {plan.success:.0%}"
        axes.text(max(plan.value, 0.0), row, text, va="center", fontsize=9)
    axes.axvline(honest, color=BLUE, linestyle="--", linewidth=1.2)
    axes.set_yticks(range(len(plans)), list(plans))
    axes.invert_yaxis()
    low, high = axes.get_xlim()
    axes.set_xlim(low, high + 0.3 * (high - low))
    axes.set_xlabel("best return of an episode (reward); dashed line: the honest way")
    tidy(axes, grid=None)
    return Picture(figure, _pay_words(found))


def _colour(name: str, above_honest: float) -> str:
    if name in ("honest", "best of all"):
        return {"honest": BLUE}.get(name, GREEN)
    return RED if above_honest > TOLERANCE else ORANGE


def _pay_words(found: Audit) -> str:
    best, honest = found.best, found.ways["honest"].value
    said = f"Honest {honest:+.2f}, best of all {best.value:+.2f}"
    if found.is_honesty_best:
        return f"{said}: honesty pays best."
    lied = f" It lies in {lies(best):.0%} of the tasks." if lies(best) else ""
    return (
        f"{said}: honesty does NOT pay best. The best way solves {best.success:.0%} of the tasks; "
        f"asked to close a paid ticket it does: {example(best)}.{lied}"
    )


# What training made of them

STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"), (RED, "^"))


def strategies_picture(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """Share of test episodes by strategy after training: a mark for each seed, a bar for the mean.

    Args:
        rows: of an experiment, with `arm` and `strategies`.
    """
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    names = list(dict.fromkeys(name for row in rows for name in row["strategies"]))
    figure = Figure(figsize=(9.0, 1.2 + 0.62 * len(names)), layout="constrained")
    axes = figure.subplots()
    for number, (arm, (colour, mark)) in enumerate(zip(arms, STYLES, strict=False)):
        for row, name in enumerate(names):
            shares = [r["strategies"].get(name, 0.0) for r in rows if r["arm"] == arm]
            y, mean = row + 0.19 * (number - (len(arms) - 1) / 2), sum(shares) / len(shares)
            axes.barh(y, mean, height=0.17, color=colour, alpha=0.35)
            label = arm if row == 0 else None
            axes.plot(shares, [y] * len(shares), mark, color=colour, markersize=4, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="share of test episodes (mark: one seed, bar: mean)", xlim=(-0.02, 1.02))
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    tidy(axes, grid=None)
    return Picture(figure, f"Most frequent strategy by reward: {_most_frequent(rows, arms)}.")


def _most_frequent(rows: Sequence[Mapping[str, Any]], arms: Sequence[str]) -> str:
    def line(arm: str) -> str:
        own = [row["strategies"] for row in rows if row["arm"] == arm]
        mean = {name: sum(r.get(name, 0.0) for r in own) / len(own) for r in own for name in r}
        top = max(mean, key=mean.get)
        return f"{arm}: {top} ({mean[top]:.0%})"

    return "; ".join(map(line, arms))

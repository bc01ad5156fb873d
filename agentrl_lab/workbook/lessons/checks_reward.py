"""Checks of the exercises of notebook 03; each names the usual mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrl_lab.workbook.checks import Verdict, Wrong, final, judge, number, report
from agentrl_lab.workbook.lessons.rewarding import TURNS, edited_from, lies, pays
from agentrl_lab.world.audit import TOLERANCE, Audit, example
from agentrl_lab.world.oracle import check_tenfold
from agentrl_lab.world.rewards import RewardSpec

__all__ = ["check_lying_pays", "check_shaping", "check_tenfold_kept", "final", "judge", "report"]


def _answered(answer: Callable[[], Any]) -> tuple[RewardSpec, Audit, dict[str, float]]:
    settings = answer()
    if settings is None:
        raise Wrong("it gives None: return a dictionary of settings")
    if isinstance(settings, dict):  # numbers of numpy are numbers
        settings = {n: v.item() if getattr(v, "ndim", None) == 0 else v
                    for n, v in settings.items()}  # fmt: skip
    try:
        spec = edited_from(settings)
    except ValueError as error:
        raise Wrong(str(error)) from error
    return spec, pays(spec), dict(settings)


# 3.1: lying pays


def check_lying_pays(answer: Callable[[], dict[str, float]]) -> Verdict:
    """Exercise 3.1: settings under which the best of all plans lies."""
    _, found, _ = _answered(answer)
    honest, lie = found.ways["honest"].value, found.ways["lie"].value
    share = lies(found.best)
    if share:
        return Verdict(
            True, f"the best plan lies in {share:.0%} of the tasks and earns "
            f"{found.best.value:+.2f}, honesty {honest:+.2f}",
        )  # fmt: skip
    if found.is_honesty_best:
        raise Wrong(
            f"honesty still pays best ({honest:+.2f}); a plan that only lies earns {lie:+.2f}. "
            "What does a lie cost, and what does it bring?"
        )
    raise Wrong(
        f"honesty no longer pays best, but what does is no lie: {example(found.best)} "
        f"({found.best.value:+.2f}; lying {lie:+.2f})"
    )


# 3.2: the tenfold rule


def check_tenfold_kept(answer: Callable[[], dict[str, float]]) -> Verdict:
    """Exercise 3.2: settings that pay for calls, obey D4 and leave honesty best."""
    spec, found, settings = _answered(answer)
    if settings.get("per_call", 0.0) <= 0:
        raise Wrong("nothing is paid on the way: a rule about process rewards holds by itself then")
    ten = check_tenfold(spec, max_turns=TURNS)
    if not ten.holds:
        raise Wrong(
            f"up to {ten.process:.2f} can be earned on the way, and a finished task is only "
            f"{ten.ratio:.1f} times that. Count every call an episode has room for, also the ones "
            "that help nothing, or cap them"
        )
    if settings.get("repeat_cost", 0.0) <= 0:
        raise Wrong("a repeated call that changes nothing costs nothing: D4 charges it")
    if not found.is_honesty_best:
        raise Wrong(
            f"honesty does not pay best ({found.ways['honest'].value:+.3f} against "
            f"{found.best.value:+.3f} for: {example(found.best)}). What does one more call bring, "
            "after its charge?"
        )
    return Verdict(True, f"a finished task is {ten.ratio:.0f} times what the way can bring")


# 3.3: potential-based shaping

STEPS = ((0.0, 0.3, False), (0.3, 0.5, False), (0.5, 0.1, False), (0.1, 0.2, True))
"""(potential before, potential after, whether the episode is over)."""
GAMMA = 0.9

MISTAKES: dict[str, Callable[[float, float, bool, float], float]] = {
    "the end has potential 0: without that the last potential is never given back": (
        lambda before, after, over, gamma: gamma * after - before
    ),
    "gamma is missing: what comes a turn later counts gamma times": (
        lambda before, after, over, gamma: (0.0 if over else after) - before
    ),
    "turned round: what is reached minus what is left": (
        lambda before, after, over, gamma: before - gamma * (0.0 if over else after)
    ),
    "gamma belongs to the later potential, not to the earlier one": (
        lambda before, after, over, gamma: (0.0 if over else after) - gamma * before
    ),
    "gamma belongs to the later potential alone, not to the difference": (
        lambda before, after, over, gamma: gamma * ((0.0 if over else after) - before)
    ),
    "nothing is taken away: a bonus for progress can be earned again and again": (
        lambda before, after, over, gamma: max(0.0, gamma * (0.0 if over else after) - before)
    ),
    "over gives 0: then the potential of the last turn is kept": (
        lambda before, after, over, gamma: 0.0 if over else gamma * after - before
    ),
}  # fmt: skip


def check_shaping(shaping: Callable[..., float]) -> Verdict:
    """Exercise 3.3: shaping(before, after, over, gamma) -> what is paid on top."""
    cases = [(*step, gamma) for gamma in (GAMMA, 1.0) for step in STEPS]
    got = [number(shaping(before, after, over, gamma=gamma), f"before {before}, after {after}")
           for before, after, over, gamma in cases]  # fmt: skip
    wanted = [gamma * (0.0 if over else after) - before for before, after, over, gamma in cases]
    if _close(got, wanted):
        return Verdict(True, "over an episode it adds up to minus the potential of the start")
    for mistake, wrong in MISTAKES.items():
        if _close(got, [wrong(*case) for case in cases]):
            raise Wrong(mistake)
    at = next(n for n in range(len(cases)) if not _close(got[n : n + 1], wanted[n : n + 1]))
    before, after, over, gamma = cases[at]
    raise Wrong(
        f"before {before}, after {after}, over {over}, gamma {gamma}: got {got[at]:.3f}, "
        f"expected {wanted[at]:.3f}"
    )


def _close(a: Any, b: Any) -> bool:
    return all(abs(x - y) < TOLERANCE for x, y in zip(a, b, strict=True))

"""What notebook 10 stands on: policies by temperature, pairs for a blind review."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.evaluation import Evaluation, evaluate
from agentrl_lab.learner.experiments import Difference, Row, averaged
from agentrl_lab.learner.policy import Policy, load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.records import Split
from agentrl_lab.workbook.conversations import Conversation, converse
from agentrl_lab.workbook.lessons.studied import success
from agentrl_lab.workbook.plots import BLUE, GREY, RED, Picture, tidy
from agentrl_lab.workbook.review import BlindReview, Pair
from agentrl_lab.world.env import TicketEnv

TEMPERATURES = (0.3, 0.7, 1.0, 1.3)
FLATTERING, USEFUL = "tiny-base", "tiny-trained"
"""Policies of the review: one that says what sounds good, one that has learned to work."""


def by_temperature(policy: Policy, tasks: int, split: Split) -> dict[float, Evaluation]:
    """How a policy does at each temperature, on the same tasks and with the same noise."""
    count = policy.tokenizer.count
    collector = Collector(
        policy, lambda: TicketEnv(split, 0, count_tokens=count), SamplingConfig()
    )  # fmt: skip
    return {t: evaluate(collector, range(tasks), temperature=t) for t in TEMPERATURES}


def temperature_picture(found: Mapping[str, Mapping[float, Evaluation]]) -> Picture:
    """Success, evasive replies and invalid actions over the temperature, a panel a policy."""
    figure = Figure(figsize=(4.6 * max(2, len(found)), 3.8), layout="constrained")
    panels, told = figure.subplots(1, len(found), squeeze=False)[0], []
    for axes, (name, seen) in zip(panels, found.items(), strict=True):
        lines = {
            "success": ([e.success.value for e in seen.values()], (BLUE, "-")),
            "evasive replies": ([e.evasive_rate for e in seen.values()], (GREY, "--")),
            "invalid actions": ([e.invalid_rate for e in seen.values()], (RED, ":")),
        }
        for label, (values, (colour, style)) in lines.items():
            axes.plot(list(seen), values, style, color=colour, label=label, marker="o")
        axes.set(title=name, xlabel="temperature", ylim=(-0.03, 1.05))
        tidy(axes)
        ends = (f"{label} {v[0]:.2f} to {v[-1]:.2f}" for label, (v, _) in lines.items())
        told.append(f"{name}: {', '.join(ends)}")
    panels[0].legend(frameon=False, fontsize=9, handlelength=3)
    low, high = TEMPERATURES[0], TEMPERATURES[-1]
    return Picture(figure, f"From temperature {low} to {high}, {'; '.join(told)}.")


def unseen_at(row: Row, temperature: float) -> Mapping[str, float]:
    """What a row has of its policy on unseen wordings at a temperature."""
    return row["elsewhere"][f"unseen at {temperature}"]


def unseen(row: Row) -> float:
    """Greedy success on unseen wordings."""
    return unseen_at(row, 0.0)["success"]


def seen_and_unseen(rows: Sequence[Row]) -> dict[str, dict[str, Difference]]:
    """Greedy success of every arm on the test tasks, and on unseen wordings."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    figures = {"test": success, "unseen wordings": unseen}
    return {
        name: {arm: averaged(rows, arm, figure) for arm in arms} for name, figure in figures.items()
    }


def shift(metric: str, at: float, against: float) -> Callable[[Row], float]:
    """A rate on unseen wordings at one temperature minus that at another."""
    return lambda row: unseen_at(row, at)[metric] - unseen_at(row, against)[metric]


def played(tasks: Sequence[int]) -> list[tuple[Conversation, Conversation]]:
    """Test tasks as the flattering policy and the useful one answer them, greedily."""
    both = (
        converse(load_policy(name), tasks, EnvConfig(), SamplingConfig())
        for name in (FLATTERING, USEFUL)
    )
    return list(zip(*both, strict=True))


def blind_review(tasks: Sequence[int], file: Path) -> BlindReview:
    """Test tasks, each answered by a flattering policy and by one that works."""
    names = (f"{FLATTERING}, {USEFUL}, test task {task}" for task in tasks)
    pairs = zip(names, played(tasks), strict=True)
    return BlindReview([Pair(name, *both) for name, both in pairs], file)

"""What notebook 09 stands on: tokens by fate, success against tokens, when failing fast pays."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.experiments import (
    Difference,
    Row,
    averaged,
    by_seed,
    episodes_to,
    paired,
)
from agentrl_lab.learner.monitors import FATES, tokens_by_fate
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.streams import stream
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.records import Split, StopReason, TaskKind
from agentrl_lab.workbook.pitfalls import BROKEN
from agentrl_lab.workbook.plots import BLUE, GREEN, GREY, ORANGE, RED, STYLES, Picture, tidy
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.habits import Habit, careful, fluent
from agentrl_lab.world.tasks import make_task

ENOUGH = 0.8
"""Validation success at two updates in a row that counts as learned."""
LOOKS = dict(zip(FATES, ((BLUE, ""), (ORANGE, "//"), (RED, "xx"), (GREY, ".."), (GREEN, "\\\\")),
                 strict=True))  # fmt: skip
"""Fate -> colour and hatching."""


def sampled(policy: Policy, episodes: int, seed: int, **settings: float | str) -> list[Trajectory]:
    """Training episodes of a policy at temperature 1, at a desk with these settings."""
    config, count = EnvConfig(**settings), policy.tokenizer.count
    collector = Collector(
        policy, lambda: TicketEnv(Split.TRAIN, seed, config, count_tokens=count), SamplingConfig()
    )
    return collector.collect(range(episodes), temperature=1.0, seed=stream(seed, "sampling", 0))


def fates_of(desks: Mapping[str, Sequence[Trajectory]]) -> Picture:
    """Tokens an episode by fate, a bar for each desk."""
    figure = Figure(figsize=(9.0, 1.4 + 0.6 * len(desks)), layout="constrained")
    axes, told = figure.subplots(), []
    for place, (name, episodes) in enumerate(desks.items()):
        left, found = 0.0, tokens_by_fate(episodes)
        for fate, tokens in found.items():
            share = tokens / len(episodes)
            colour, hatch = LOOKS[fate]
            axes.barh(place, share, left=left, color=colour, hatch=hatch, edgecolor="white",
                      label=fate if place == 0 else None)  # fmt: skip
            left += share
        listed = ", ".join(f"{fate} {t / len(episodes):.1f}" for fate, t in found.items())
        told.append(f"{name}: {left:.0f} tokens an episode ({listed})")
    axes.set_yticks(range(len(desks)), list(desks))
    axes.invert_yaxis()
    axes.set_xlabel("tokens an episode")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    tidy(axes, grid=None)
    return Picture(figure, "; ".join(told) + ".")


# Recorded runs


def _learned_at(row: Row) -> int | None:
    """Place of the first of two updates in a row with enough validation success."""
    episodes, at = row["curve"]["episodes"], episodes_to(row, ENOUGH)
    return episodes.index(at) if at in episodes else None


def tokens_to_learn(row: Row) -> float:
    """Tokens that the policy wrote until it had learned; all and an update more if it never did."""
    at, tokens = _learned_at(row), [written or 0 for written in row["curve"]["policy_tokens"]]
    return 2 * tokens[-1] - tokens[-2] if at is None else tokens[at]


def updates_to_learn(row: Row) -> float:
    """Updates until it had learned; one more than there were if it never did."""
    at = _learned_at(row)
    return len(row["curve"]["validation_success"]) if at is None else at


def successes_per_1000(row: Row) -> float:
    """Successful training episodes per 1,000 tokens that the policy wrote, over the whole run."""
    curve = row["curve"]
    size = curve["episodes"][1]
    won = sum(rate * size for rate in curve["success_rate"] if rate is not None)
    return 1000 * won / row["policy_tokens"]


def invalid_late(row: Row) -> float:
    """Invalid share of all actions in the second half of the updates."""
    shares, turns = (row["curve"][name][1:] for name in ("invalid_rate", "turns_per_episode"))
    half = len(shares) // 2
    return float(np.average(shares[half:], weights=turns[half:]))


def saved(rows: Sequence[Row], arm: str) -> Difference:
    """Tokens to learn that an arm saves, in pairs of seeds, over the mean of broken.

    The mean is taken as known: its own spread is not in the interval.
    """
    mean = averaged(rows, BROKEN, tokens_to_learn).mean
    spent = (by_seed(rows, name, lambda row: tokens_to_learn(row) / mean) for name in (BROKEN, arm))
    return paired(*spent)


def cost_picture(rows: Sequence[Row], arms: Sequence[str], *, by_tokens: bool) -> Picture:
    """Mean validation success over episodes, or over the tokens that the policy had written."""
    figure, told = Figure(figsize=(8.0, 4.2), layout="constrained"), []
    axes = figure.subplots()
    for arm, (colour, style) in zip(arms, STYLES, strict=False):
        curves = by_seed(rows, arm, lambda row: row["curve"])
        x = np.mean([_spent(curve, by_tokens) for curve in curves], axis=0)
        y = np.mean([curve["validation_success"] for curve in curves], axis=0)
        axes.plot(x, y, style, color=colour, label=arm, linewidth=2.5)
        told.append(f"{arm} {y[-1]:.2f} after {x[-1]:,.0f}")
    unit = "tokens written" if by_tokens else "episodes"
    axes.set(xlabel=unit, ylabel="validation success (share)", ylim=(0, 1.05))
    axes.legend(frameon=False, handlelength=4)
    tidy(axes)
    return Picture(figure, f"Mean over seeds at the end: {'; '.join(told)} {unit}.")


def _spent(curve: Mapping[str, Sequence[float | None]], by_tokens: bool) -> list[float]:
    return [value or 0 for value in curve["policy_tokens" if by_tokens else "episodes"]]


# When failing fast pays


def ends(**settings: float) -> dict[str, float]:
    """Reward of an episode that succeeds, of a wrong reply, and of giving up at once."""
    ways = {"success": careful, "a wrong reply": fluent, "giving up": lambda *_: ["hm"] * 3}
    return {name: _reward(way, EnvConfig(**settings)) for name, way in ways.items()}


def _reward(way: Habit, config: EnvConfig) -> float:
    unpaid = make_task(Split.TRAIN, 0, 0, {TaskKind.CLOSE_UNPAID: 1.0})
    env = TicketEnv(config=config, task_source=lambda _: unpaid)
    env.reset(options={"index": 0})
    return sum(env.step(text)[1] for text in way(unpaid, env.codec, random.Random(0)))


def break_even(win: float, lose: float, stop: float) -> float:
    """The chance of success below which to stop at once pays more than to try.

        p * win + (1 - p) * lose = stop
    """
    return min(1.0, max(0.0, (stop - lose) / (win - lose)))


def struck(episodes: Sequence[Trajectory]) -> float:
    """Share of episodes that three strikes ended."""
    return sum(t.stop is StopReason.THREE_STRIKES for t in episodes) / len(episodes)

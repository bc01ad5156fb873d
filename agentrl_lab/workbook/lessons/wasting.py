"""What notebook 09 stands on: tokens by fate, success against tokens, when failing fast pays."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache

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
from agentrl_lab.learner.monitors import FATES, Rows, tokens_by_fate
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.streams import stream
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.records import Split, StopReason, TaskKind
from agentrl_lab.workbook.pitfalls import BROKEN
from agentrl_lab.workbook.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    STYLES,
    Picture,
    blank,
    tidy,
)
from agentrl_lab.world.audit import audit
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.habits import Habit, careful, fluent
from agentrl_lab.world.rewards import reward_of
from agentrl_lab.world.tasks import make_task

ENOUGH = 0.8
"""Validation success at two updates in a row that counts as learned."""
LOOKS = dict(zip(FATES, ((BLUE, ""), (ORANGE, "//"), (RED, "xx"), (GREY, ".."), (GREEN, "\\\\")),
                 strict=True))  # fmt: skip
"""Fate -> colour and hatching."""
WAYS = ("honest", "change blindly", "fail fast")
"""To work as one should, to act without a look, and to write nothing that is an action."""


def sampled(policy: Policy, episodes: int, seed: int, **settings: float | str) -> list[Trajectory]:
    """Training episodes of a policy at temperature 1, at a desk with these settings."""
    config, count = EnvConfig(**settings), policy.tokenizer.count
    collector = Collector(
        policy, lambda: TicketEnv(Split.TRAIN, seed, config, count_tokens=count), SamplingConfig()
    )
    return collector.collect(range(episodes), temperature=1.0, seed=stream(seed, "sampling", 0))


def per_episode(episodes: Sequence[Trajectory]) -> dict[str, float]:
    """Tokens an episode by fate."""
    return {fate: n / len(episodes) for fate, n in tokens_by_fate(episodes).items()}


def per_update(rows: Rows) -> dict[str, dict[str, float]]:
    """The same for each update of a run, as its log has it."""
    trained = [row for row in rows if row.get("useful_tokens") is not None]
    return {
        f"update {number}": {fate: row[f"{fate}_tokens"] for fate in FATES}
        for number, row in enumerate(trained, start=1)
    }


def fates_picture(found: Mapping[str, Mapping[str, float]]) -> Picture:
    """Tokens an episode by fate, a bar for each name; blank without any."""
    if not found:
        return blank("No update was finished: there is no episode to look at.")
    figure = Figure(figsize=(9.0, 1.4 + 0.45 * len(found)), layout="constrained")
    axes, told = figure.subplots(), []
    for place, (name, fates) in enumerate(found.items()):
        left = 0.0
        for fate, tokens in fates.items():
            colour, hatch = LOOKS[fate]
            axes.barh(place, tokens, left=left, color=colour, hatch=hatch, edgecolor="white",
                      label=fate if place == 0 else None)  # fmt: skip
            left += tokens
        listed = ", ".join(f"{fate} {tokens:.1f}" for fate, tokens in fates.items())
        told.append(f"{name}: {left:.0f} tokens an episode ({listed})")
    axes.set_yticks(range(len(found)), list(found))
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


def first_episodes(row: Row) -> float:
    """Tokens an episode in the first update, of the policy as it begins."""
    curve = row["curve"]
    return curve["policy_tokens"][1] / curve["episodes"][1]


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


@cache
def found(strike_extra: float) -> dict[str, float]:
    """The best return of each way to play, by search, at a price of giving up."""
    ways = audit(reward_of(EnvConfig(strike_extra=strike_extra))).ways
    return {name: ways[name].value for name in WAYS}


def giving_up_picture(extras: Sequence[float]) -> Picture:
    """Best returns over what giving up pays."""
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    axes, seen = figure.subplots(), [found(extra) for extra in extras]
    pays = [returns["fail fast"] for returns in seen]
    for name, (colour, style) in zip(WAYS, STYLES, strict=False):
        values = [returns[name] for returns in seen]
        axes.plot(pays, values, style, color=colour, linewidth=2.5)
        axes.annotate(f" {name}", (pays[-1], values[-1]), va="center", color=colour)
    axes.set(xlabel="reward of an episode that three strikes end", ylabel="best return")
    axes.set_xlim(pays[0], pays[-1] + 0.5)
    tidy(axes)
    others = ", ".join(f"{n} {v:.2f}" for n, v in seen[-1].items() if n != "fail fast")
    return Picture(
        figure, f"Whatever failing fast pays, from {pays[0]:.1f} to {pays[-1]:.1f}: {others}."
    )


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


def was_struck(episode: Trajectory) -> bool:
    """Whether three strikes ended it."""
    return episode.stop is StopReason.THREE_STRIKES


def struck(episodes: Sequence[Trajectory]) -> float:
    """Share of episodes that three strikes ended."""
    return sum(map(was_struck, episodes)) / len(episodes)

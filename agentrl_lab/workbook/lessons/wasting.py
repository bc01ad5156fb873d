"""What notebook 09 stands on: tokens by fate, success against tokens, when failing fast pays."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
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


OfRow = Callable[[Row], float]


def _reached(row: Row, level: float) -> int | None:
    """Place of the first of two updates in a row with so much validation success."""
    episodes, at = row["curve"]["episodes"], episodes_to(row, level)
    return episodes.index(at) if at in episodes else None


def tokens_to(level: float) -> OfRow:
    """Tokens written until a level was reached; all and an update more if it never was."""

    def tokens(row: Row) -> float:
        at, spent = _reached(row, level), _spent(row["curve"])
        return 2 * spent[-1] - spent[-2] if at is None else spent[at]

    return tokens


def updates_to(level: float) -> OfRow:
    """Updates until a level was reached; one more than there were if it never was."""

    def updates(row: Row) -> float:
        at = _reached(row, level)
        return len(row["curve"]["validation_success"]) if at is None else at

    return updates


tokens_to_learn, updates_to_learn = tokens_to(ENOUGH), updates_to(ENOUGH)


def never_learned(rows: Sequence[Row], arm: str) -> int:
    """Runs of an arm that never reach the level that counts as learned."""
    return sum(_reached(row, ENOUGH) is None for row in rows if row["arm"] == arm)


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


def saved(rows: Sequence[Row], arm: str, level: float = ENOUGH) -> Difference:
    """Tokens to learn that an arm saves, in pairs of seeds, over the mean of broken.

    The mean is taken as known: its own spread is not in the interval.
    """
    tokens, mean = tokens_to(level), averaged(rows, BROKEN, tokens_to(level)).mean
    spent = (by_seed(rows, name, lambda row: tokens(row) / mean) for name in (BROKEN, arm))
    return paired(*spent)


def cost_picture(rows: Sequence[Row], arms: Sequence[str]) -> Picture:
    """Mean validation success over the tokens that had been written."""
    figure, told = Figure(figsize=(8.0, 4.2), layout="constrained"), []
    axes = figure.subplots()
    for arm, (colour, style) in zip(arms, STYLES, strict=False):
        curves = by_seed(rows, arm, lambda row: row["curve"])
        x = np.mean([_spent(curve) for curve in curves], axis=0)
        y = np.mean([curve["validation_success"] for curve in curves], axis=0)
        axes.plot(x, y, style, color=colour, label=arm, linewidth=2.5)
        missed, needs = never_learned(rows, arm), averaged(rows, arm, tokens_to_learn).mean
        learned = f"{ENOUGH} after {needs:,.0f}"
        if missed:
            learned = f"never {ENOUGH} in {missed} of {len(curves)}"
        told.append(f"{arm} {learned}, {y[-1]:.2f} after {x[-1]:,.0f}")
    axes.set(xlabel="tokens written", ylabel="validation success (share)", ylim=(0, 1.05))
    axes.legend(frameon=False, handlelength=4)
    tidy(axes)
    return Picture(figure, f"Tokens written, mean over seeds: {'; '.join(told)}.")


def _spent(curve: Mapping[str, Sequence[float | None]]) -> list[float]:
    return [tokens or 0 for tokens in curve["policy_tokens"]]


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
    axes.set_xticks(pays, [f"{price:.1f}" for price in pays])
    tidy(axes)
    blind, honest = seen[-1]["change blindly"], seen[-1]["honest"]
    return Picture(
        figure,
        f"While failing fast pays from {pays[0]:.1f} to {pays[-1]:.1f}, honest work pays "
        f"{honest:.2f} and to change blindly {blind:.2f}: above that, failing fast pays more.",
    )


def ends(**settings: float) -> dict[str, float]:
    """Reward of an episode that succeeds, of a wrong reply, and of giving up at once."""
    ways = {"success": careful, "a wrong reply": fluent, "giving up": lambda *_: ["hm"] * 3}
    return {name: round(_reward(way, EnvConfig(**settings)), 9) for name, way in ways.items()}


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

"""What notebook 10 stands on: a program, ways to learn by price and temperature, a review."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.evaluation import evaluate
from agentrl_lab.learner.experiments import Difference, Row, averaged
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.records import Call, Split
from agentrl_lab.workbook.conversations import Conversation, converse
from agentrl_lab.workbook.lessons.studied import success
from agentrl_lab.workbook.plots import BLUE, GREY, RED, Picture, tidy
from agentrl_lab.workbook.review import BlindReview, Pair, Reward
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.rewards import reward_of

TEMPERATURES = (0.3, 0.7, 1.0, 1.3)
FLATTERING, USEFUL = "tiny-base", "tiny-trained"
"""Policies of the review: one that says what sounds good, one that has learned to work."""


# A program

Decide = Callable[[str, Mapping[str, object]], tuple[str | None, str]]
"""(request, what a query returned) -> (new status or None, what to say, with {id})."""


def by_program(decide: Decide, split: Split, tasks: int) -> float:
    """Success of a program on the first tasks of a split: it looks, decides, acts and replies."""
    return sum(_worked(decide, split, task) for task in range(tasks)) / tasks


def _worked(decide: Decide, split: Split, task: int) -> bool:
    env = TicketEnv(split)
    env.reset(options={"index": task})
    request = env.messages[-1].content
    ticket_id = re.search(r"S\d{4}", request)[0]
    env.step(env.codec.render(Call("query_ticket", {"ticket_id": ticket_id})))
    answer = json.loads(env.messages[-1].content.splitlines()[0])
    new_status, words = decide(request, answer)
    if new_status:
        change = {"ticket_id": ticket_id, "new_status": new_status}
        env.step(env.codec.render(Call("update_ticket", change)))
    env.step(env.codec.render(Call("reply", {"content": words.format(id=ticket_id)})))
    return env.outcome.success


# By temperature

Shares = Mapping[str, float]
"""success, evasive_rate and invalid_rate of a policy at one temperature."""


def seen_at(name: str, split: Split, tasks: int, temperature: float) -> Shares:
    """How a policy does on the first tasks of a split, always with the same noise."""
    policy = load_policy(name)
    collector = Collector(
        policy, lambda: TicketEnv(split, 0, count_tokens=policy.tokenizer.count), SamplingConfig()
    )  # fmt: skip
    seen = evaluate(collector, range(tasks), temperature=temperature)
    rates = {"evasive_rate": seen.evasive_rate, "invalid_rate": seen.invalid_rate}
    return {"success": seen.success.value, **rates}


def temperature_picture(found: Mapping[str, Mapping[float, Shares]]) -> Picture:
    """Success, evasive replies and invalid actions over the temperature, a panel a policy."""
    figure = Figure(figsize=(3.6 * max(2, len(found)), 3.8), layout="constrained")
    panels, told = figure.subplots(1, len(found), squeeze=False, sharey=True)[0], []
    styles = {"success": (BLUE, "-"), "evasive_rate": (GREY, "--"), "invalid_rate": (RED, ":")}
    labels = {"success": "success", "evasive_rate": "evasive", "invalid_rate": "invalid"}
    for axes, (name, seen) in zip(panels, found.items(), strict=True):
        ends = []
        for key, (colour, style) in styles.items():
            values = [shares[key] for shares in seen.values()]
            axes.plot(list(seen), values, style, color=colour, label=labels[key], marker="o")
            ends.append(f"{labels[key]} {values[0]:.2f} to {values[-1]:.2f}")
        axes.set(title=name, xlabel="temperature", ylim=(-0.03, 1.05))
        axes.legend(frameon=False, fontsize=9, handlelength=3)
        tidy(axes)
        told.append(f"{name}: {', '.join(ends)}")
    low, high = TEMPERATURES[0], TEMPERATURES[-1]
    return Picture(figure, f"From temperature {low} to {high}, {'; '.join(told)}.")


# In the rows


def unseen_at(row: Row, temperature: float) -> Shares:
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


def mean_unseen_at(rows: Sequence[Row], arm: str) -> dict[float, Shares]:
    """Means over the seeds of an arm on unseen wordings, by temperature."""
    keys = ("success", "evasive_rate", "invalid_rate")
    return {
        t: {key: averaged(rows, arm, lambda row, at=(t, key): unseen_at(row, at[0])[at[1]]).mean
            for key in keys}
        for t in TEMPERATURES
    }  # fmt: skip


def shift(metric: str, at: float, against: float) -> Callable[[Row], float]:
    """A rate on unseen wordings at one temperature minus that at another."""
    return lambda row: unseen_at(row, at)[metric] - unseen_at(row, against)[metric]


def bought(budget: float) -> Callable[[Row], float]:
    """Validation success of a run at its last update that so many tokens pay for."""

    def success_at(row: Row) -> float:
        curve = row["curve"]
        spent = [tokens or 0 for tokens in curve["policy_tokens"]]
        last = sum(tokens <= budget for tokens in spent) - 1
        return curve["validation_success"][last]

    return success_at


# The review


def played(tasks: Sequence[int]) -> list[tuple[Conversation, Conversation]]:
    """Validation tasks as the flattering policy and the useful one answer them, greedily."""
    both = (
        converse(load_policy(name), tasks, EnvConfig(), SamplingConfig(), Split.VALIDATION)
        for name in (FLATTERING, USEFUL)
    )
    return list(zip(*both, strict=True))


def blind_review(pairs: int, file: Path) -> BlindReview:
    """The first tasks that a flattering policy and one that works answer differently."""
    return BlindReview(list(islice(_unlike(), pairs)), file)


def _unlike() -> Iterator[Pair]:
    for start in count(step=16):
        for task, both in enumerate(played(range(start, start + 16)), start):
            if both[0].messages != both[1].messages:
                yield Pair(f"{FLATTERING}, {USEFUL}, validation task {task}", *both)


def priced(preset: str) -> Reward:
    """What a reward preset would have paid for a conversation."""
    spec = reward_of(EnvConfig(reward=preset))
    return lambda conversation: spec.score(conversation.trajectory.outcome).total

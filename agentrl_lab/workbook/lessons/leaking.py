"""What notebook 07 stands on: a policy under swapped answers, desks that leak, recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig, SamplingConfig, with_settings
from agentrl_lab.learner.evaluation import Evaluation, evaluate
from agentrl_lab.learner.experiments import Difference, Row, averaged
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.records import Split, TaskKind
from agentrl_lab.workbook.pitfalls import LEAKAGE
from agentrl_lab.workbook.plots import BLUE, GREY, Picture, blank, tidy
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.habits import query
from agentrl_lab.world.leaks import Sighting, Tell, tells
from agentrl_lab.world.tampering import DECLARED
from agentrl_lab.world.tasks import Task, make_task

OWN = "own"
VIEWS: Mapping[str, Mapping[str, str]] = {OWN: {}, **LEAKAGE.elsewhere}
"""The desks that a policy is looked at: its own, one without the field, and swapped ones."""


def looked_at(
    policy: Policy, env: EnvConfig, tasks: int, views: Mapping[str, Mapping[str, str]] = VIEWS
) -> dict[str, Evaluation]:
    """How a policy does on test tasks in each view, greedily.

    Args:
        policy: any.
        env: the desk that it was trained at.
        tasks: how many.
        views: name -> settings that differ from that desk.
    """
    count = policy.tokenizer.count

    def seen(settings: Mapping[str, str]) -> Evaluation:
        there = with_settings(env, settings)
        return evaluate(
            Collector(
                policy, lambda: TicketEnv(Split.TEST, 0, there, count_tokens=count),
                SamplingConfig(),
            ),
            range(tasks),
        )  # fmt: skip

    return {name: seen(settings) for name, settings in views.items()}


def desk(**settings: str) -> TicketEnv:
    """A desk whose answers are shown whole enough to read."""
    return TicketEnv(Split.TEST, 0, EnvConfig(result_budget=80, **settings))


def shown_with_canary(canary: str, **settings: str) -> list[str]:
    """All texts of an episode whose right answer is the canary."""
    task = next(
        task for task in (make_task(Split.TRAIN, 0, index) for index in range(50))
        if task.kind is TaskKind.STATUS_ONLY
    )  # fmt: skip
    kept = replace(task, expected=SimpleNamespace(value=canary))
    config = EnvConfig(result_budget=10_000, **settings)
    env = TicketEnv(config=config, task_source=lambda _: kept)
    env.reset(options={"index": 0})
    for text in ("hm", env.codec.render(query(kept))):
        env.step(text)
    return [message.content for message in env.messages]


# Recorded runs


def success_in(view: str) -> Callable[[Row], float]:
    """Reads the test success of a run in a view."""
    return lambda row: (
        row["test_success"] if view == OWN else row["elsewhere"][view]["success"]
    )  # fmt: skip


def lost_in(view: str) -> Callable[[Row], float]:
    """Reads the success that a run loses in a view."""
    there = success_in(view)
    return lambda row: row["test_success"] - there(row)


def by_view(
    rows: Sequence[Row], arms: Sequence[str], views: Sequence[str]
) -> dict[str, dict[str, Difference]]:
    """Success of each arm in each view, mean over seeds with intervals."""
    return {arm: {view: averaged(rows, arm, success_in(view)) for view in views} for arm in arms}


# Desks that leak

Texts = tuple[str, ...]
Spoil = Callable[[Task, Texts], Texts]


def _in_the_error(task: Task, texts: Texts) -> Texts:
    """The hint after a slip is worded otherwise where a change is needed."""
    said = "write a call" if task.required else "write one"
    return (texts[0], texts[1].replace("write one", said), texts[2])


def _in_the_length(task: Task, texts: Texts) -> Texts:
    """Tickets that may not be closed have a longer history."""
    more = '{"text":"called again"},' * (3 * (task.expected == "unpaid"))
    return (*texts[:2], texts[2].replace('"history":[', '"history":[' + more))


def _as_it_is(task: Task, texts: Texts) -> Texts:
    return texts


DESKS: Mapping[str, tuple[Spoil, bool, str]] = {
    "W": (_as_it_is, True, "the order of the tasks"),
    "X": (_in_the_error, False, "the text of an error"),
    "Y": (_as_it_is, False, "nothing"),
    "Z": (_in_the_length, False, "the length of an answer"),
}
"""Desk -> (what is done to its texts, whether its tasks come sorted, what leaks)."""


@cache
def sightings(desk: str, count: int = 240) -> tuple[Sighting, ...]:
    """What a policy sees at a desk up to its decision: the request, an error, the answer."""
    spoil, in_order, _ = DESKS[desk]
    tasks = [make_task(Split.TRAIN, 0, index) for index in range(count)]
    if in_order:  # all tasks of a kind one after the other
        tasks.sort(key=lambda task: task.kind)
    return tuple(Sighting(spoil(task, _texts(task)), task.expected.value) for task in tasks)


def _texts(task: Task) -> Texts:
    env = TicketEnv(config=EnvConfig(result_budget=10_000), task_source=lambda _: task)
    request, _ = env.reset(options={"index": 0})
    error, *_ = env.step("hm")
    answer, *_ = env.step(env.codec.render(query(task)))
    return request, error, answer


@cache
def tells_of(desk: str) -> list[Tell]:
    """What the detector finds there, the strongest first."""
    return tells(sightings(desk), declared=DECLARED)


def tells_picture(desk: str, most: int = 5) -> Picture:
    """The features that give the answers of a desk away, with how often they guess right."""
    found, size = tells_of(desk)[:most], (8.6, 1.4 + 0.4 * most)  # one size: no panel jumps
    if not found:
        return blank(f"Desk {desk}: nothing but what is declared tells the answer.", *size)
    figure = Figure(figsize=size, layout="constrained")
    axes, base = figure.subplots(), found[0].baseline
    axes.barh([tell.feature for tell in found], [tell.accuracy for tell in found], color=BLUE)
    axes.axvline(base, color=GREY, linestyle="--")
    axes.text(base, -0.7, " by frequency alone", color=GREY, va="center")
    axes.set(
        xlim=(0, 1), ylim=(most - 0.5, -0.5), xlabel="share of answers guessed from this alone"
    )
    tidy(axes, grid=None)
    listed = ", ".join(f"{tell.feature} {tell.accuracy:.2f}" for tell in found)
    return Picture(figure, f"Desk {desk}, guessed right: {listed}; by frequency {base:.2f}.")

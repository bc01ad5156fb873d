"""What notebook 02 stands on: one text read by three parsers, the price of an invalid action.

Also what recorded runs lose when the tools of the desk change. Knows no training.
"""

from __future__ import annotations

import html
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from agentrl_lab.config import EnvConfig
from agentrl_lab.learner.experiments import Difference, averaged, compared
from agentrl_lab.records import ParseFailure, Split, TaskKind
from agentrl_lab.workbook.conversations import call_in_words
from agentrl_lab.workbook.plots import BLUE, GREEN, ORANGE, Page, Picture, tidy
from agentrl_lab.world import habits
from agentrl_lab.world.desk import STANDARD_TOOLS, TicketDesk, Tool
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.id_codec import codec_of
from agentrl_lab.world.parser import one_call
from agentrl_lab.world.rewards import PRESETS
from agentrl_lab.world.tasks import Task, make_task

ENCODINGS = ("function", "json", "id")
TOOLS = tuple(sorted(STANDARD_TOOLS, key=lambda tool: tool.name))
AS_TRAINED = "as trained"
MOST_INVALID = 3
"""Of six turns, three are needed to close a ticket."""


# One text, three readers


def readings(text: str, tools: Iterable[Tool] = TOOLS) -> Page:
    """What each encoding makes of a text, and whether the desk would run it."""
    tools = tuple(tools)
    told = {name: _reading(text, name, tools) for name in ENCODINGS}
    cell = '<td style="text-align:left;padding:3px 10px;vertical-align:top">'
    rows = "".join(
        f"<tr>{cell}<b>{name}</b></td>{cell}{html.escape(said)}</td></tr>"
        for name, said in told.items()
    )
    sentence = "; ".join(f"{name}: {said}" for name, said in told.items())
    return Page(f"<table>{rows}</table>", sentence)


def _reading(text: str, name: str, tools: Sequence[Tool]) -> str:
    read = one_call(codec_of(name, tools).parse(text))
    if isinstance(read, ParseFailure):
        return f"✘ {read.kind.value}. {read.hint}"
    refused = TicketDesk({}, tools).call(read.tool, dict(read.arguments)).invalid
    if refused:
        return f"✘ {refused.kind.value}. {refused.hint}"
    return f"✔ {call_in_words(read)}"


# What an invalid action costs


def paid_after(invalid: int, reward: str) -> float:
    """Reward of an episode that closes a ticket as it should, after some invalid actions.

    Args:
        invalid: 0 to MOST_INVALID; no three of them stand in a row.
        reward: a preset.
    """
    if not 0 <= invalid <= MOST_INVALID:
        raise ValueError(f"invalid must be between 0 and {MOST_INVALID}, got {invalid}")
    env = TicketEnv(config=EnvConfig(reward=reward), task_source=lambda _: _paid_ticket())
    env.reset(options={"index": 0})
    messages = habits.careful(env.task, env.codec, random.Random(0))
    wrong = ["Please wait."] * invalid
    for message in [*wrong[:2], messages[0], *wrong[2:], *messages[1:]]:
        env.step(message)
    return env.score.total


def paid_for_three_strikes(reward: str) -> float:
    """Reward of an episode whose first three actions are invalid."""
    env = TicketEnv(config=EnvConfig(reward=reward), task_source=lambda _: _paid_ticket())
    env.reset(options={"index": 0})
    for _ in range(3):
        env.step("Please wait.")
    return env.score.total


def _paid_ticket() -> Task:
    tasks = (make_task(Split.TRAIN, 0, index) for index in range(100))
    return next(task for task in tasks if task.kind is TaskKind.CLOSE_PAID)


STYLES = ((ORANGE, "--", "s"), (GREEN, "-.", "D"), (BLUE, "-", "o"))


def price_picture() -> Picture:
    """The reward of a finished task after some invalid actions; presets that pay alike in one."""
    counts, lines = range(MOST_INVALID + 1), defaultdict(list)
    for name in PRESETS:
        lines[tuple(paid_after(invalid, name) for invalid in counts)].append(name)
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for (paid, names), (colour, style, mark) in zip(lines.items(), STYLES, strict=True):
        axes.plot(counts, paid, style, marker=mark, color=colour)
        place = (counts[-1] + 0.06, paid[-1])
        axes.annotate(" and ".join(names), place, va="center", color=colour, fontweight="bold")
    axes.set(xlabel="invalid actions on the way", ylabel="reward of the finished task")
    axes.set(xticks=counts, xlim=(-0.1, MOST_INVALID + 1.0))
    tidy(axes)
    told = "; ".join(
        f"{' and '.join(names)} {paid[0]:.2f} without and {paid[-1]:.2f} with {MOST_INVALID}"
        for paid, names in lines.items()
    )
    return Picture(figure, f"Reward of a finished task: {told}.")


# Recorded runs at desks with other tools


Rows = Sequence[Mapping[str, Any]]


def by_encoding(rows: Rows) -> dict[str, dict[str, Difference]]:
    """Test success by arm and by tools, mean over seeds, of rows with `elsewhere`."""
    arms = dict.fromkeys(row["arm"] for row in rows)
    changes = (AS_TRAINED, *rows[0]["elsewhere"])
    return {arm: {c: averaged(rows, arm, _success(c)) for c in changes} for arm in arms}


def more_lost(rows: Rows, arm: str, other: str, change: str) -> Difference:
    """How much more success an arm loses by a change than another arm does, in pairs of seeds."""
    before, after = _success(AS_TRAINED), _success(change)
    return compared(rows, arm, other, lambda row: before(row) - after(row))


def above_half(rows: Rows, arm: str, change: str) -> Difference:
    """Success after a change minus half of success as trained."""
    before, after = _success(AS_TRAINED), _success(change)
    return averaged(rows, arm, lambda row: after(row) - before(row) / 2)


def _success(change: str) -> Callable[[Mapping[str, Any]], float]:
    if change == AS_TRAINED:
        return lambda row: row["test_success"]
    return lambda row: row["elsewhere"][change]["success"]

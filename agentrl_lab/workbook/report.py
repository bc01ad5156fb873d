"""report.html of a run: one self-contained page that says what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl_lab.config import TrainConfig, flatten
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.rundir import VERSIONS, RunDir
from agentrl_lab.workbook.conversations import Conversation, converse
from agentrl_lab.workbook.pages import render
from agentrl_lab.workbook.plots import learning_curve

KIND_WORDS = {
    "close_paid": "close, paid",
    "close_unpaid": "close, unpaid",
    "already_closed": "already closed",
    "not_found": "not found",
    "status_only": "status only",
}
SEARCHED_TASKS = range(40)


def write_report(run: RunDir) -> Path:
    """Writes report.html for a finished run and returns its path."""
    config, result, rows = run.config(), run.result(), run.metrics()
    before, after = _telling_pair(config, run.path / "policy")
    picture = learning_curve(rows)
    html = render(
        "report.html.j2",
        result=result, config=config, settings=flatten(config), versions=run.read(VERSIONS),
        picture=picture, before=before, after=after, kinds=_kinds(result), words=in_words(result),
        rows=rows, last=json.dumps(rows[-1], indent=1),
    )  # fmt: skip
    path = run.path / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


def _telling_pair(config: TrainConfig, trained: Path) -> tuple[Conversation, Conversation]:
    """The first test task that only the trained policy does, else the first task."""
    old, new = (
        converse(load_policy(policy), SEARCHED_TASKS, config.env, config.sampling)
        for policy in (config.policy, trained)
    )
    pairs = list(zip(old, new, strict=True))
    return next((pair for pair in pairs if _telling(*pair)), pairs[0])


def _telling(before: Conversation, after: Conversation) -> bool:
    won = [told.trajectory.outcome.success for told in (before, after)]
    return won == [False, True] and len(after.trajectory.stages) > 2


def _kinds(result: dict[str, Any]) -> list[tuple[str, dict, dict]]:
    before, after = result["untrained_test"]["by_kind"], result["test"]["by_kind"]
    return [(KIND_WORDS.get(kind, kind), before[kind], after[kind]) for kind in after]


def in_words(result: dict[str, Any]) -> list[str]:
    """What training changed, a sentence each, from the figures of the test split."""
    before, after = result["untrained_test"], result["test"]
    warm, cold = result["untrained_test_at_temperature"], result["test_at_temperature"]
    sentences = [
        f"Greedy success on {after['success']['n']} test tasks went from "
        f"{_share(before['success'])} to {_share(after['success'])}.",
        f"Sampled at temperature {result['temperature']:g} it went from {_share(warm['success'])} "
        f"to {_share(cold['success'])}.",
        f"The policy claimed a change it had not made in {_percent(before['fabrication'])} of the "
        f"greedy episodes before and in {_percent(after['fabrication'])} after.",
        f"It took {before['turns']:.1f} turns an episode before and {after['turns']:.1f} after; "
        f"invalid actions went from {before['invalid_rate']:.1%} to {after['invalid_rate']:.1%}.",
    ]
    weak = [
        f"{KIND_WORDS.get(kind, kind)} ({_percent(value)})"
        for kind, value in after["by_kind"].items()
        if value["value"] < 0.9
    ]
    if weak:
        sentences.append(f"Still under 90%: {', '.join(weak)}.")
    if result["rollbacks"]:
        sentences.append(f"The validation guard rolled back {result['rollbacks']} times.")
    return sentences


def _share(rate: dict[str, float]) -> str:
    return f"{rate['value']:.2f} (95% interval {rate['low']:.2f} to {rate['high']:.2f})"


def _percent(rate: dict[str, float]) -> str:
    return f"{rate['value']:.0%}"


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as aligned text, for the terminal."""
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )

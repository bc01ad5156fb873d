"""An episode to look into: turn by turn, each token a box with all that PPO makes of it.

The page is plain HTML without scripts, so that it stays readable in a stored notebook and offline.
Knows no widgets, and computes no number: those are in token_table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from agentrl_lab.config import PPOConfig, choice
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.learner.trajectories import Stage, Trajectory
from agentrl_lab.workbook.conversations import call_in_words
from agentrl_lab.workbook.pages import render
from agentrl_lab.workbook.plots import BLUE, ORANGE
from agentrl_lab.workbook.token_table import COLUMNS, Column, TokenRow, token_rows, visible

_UP, _DOWN, _EVEN, _NOT_A_NUMBER = "▲", "▼", "·", "?"
_DEEPEST = 0.6
"""Share of the pure colour in the strongest box: dark text stays readable on it."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """An episode laid out token by token; a notebook shows the page."""

    sentence: str
    """What the strip shows, in words."""
    html: str = field(repr=False)  # a notebook stores the text form beside the page
    rows: tuple[TokenRow, ...] = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


def inspect_episode(
    trajectory: Trajectory,
    policy: Policy,
    ppo: PPOConfig,
    *,
    temperature: float,
    colour_by: str = "advantage",
    episodes: Sequence[Trajectory] = (),
) -> Inspection:
    """The episode turn by turn: what the policy read and wrote, coloured by one number.

    Args:
        trajectory: the episode, as it was collected.
        policy: as it is now.
        ppo: discounts and clip range.
        temperature: of the rollout; 0 is greedy.
        colour_by: a name of COLUMNS.
        episodes: all episodes of the update, for advantage_whitened.

    Raises:
        ValueError: colour_by is no column (the nearest is offered), or as in token_rows.
    """
    choice("colour_by", colour_by, COLUMNS)
    rows = token_rows(trajectory, policy, ppo, temperature=temperature, episodes=episodes)
    paint = Paint(COLUMNS[colour_by], rows)
    sentence = _sentence(trajectory, rows, paint)
    html = render(
        "inspector.html.j2",
        turns=_turns(trajectory, rows, policy.tokenizer), paint=paint, sentence=sentence,
        columns=COLUMNS, cell=_cell, stop=trajectory.stop,
        num_episodes=len({id(t) for t in (trajectory, *episodes)}),
    )  # fmt: skip
    return Inspection(sentence, html, tuple(rows))


def tint(share: float) -> str:
    """White at 0, towards blue at 1 and orange at -1; never so deep that dark text is hard to read.

    Args:
        share: of the strongest number; more than 1 counts as 1.
    """
    pure = bytes.fromhex((BLUE if share > 0 else ORANGE)[1:])
    depth = _DEEPEST * min(1.0, abs(share))
    return "#" + bytes(round(255 + depth * (part - 255)) for part in pure).hex()


class Paint:
    """Colour and sign of the boxes. The sign says what the colour says; both follow the number.

    Args:
        column: what is shown.
        rows: the episode; its strongest token gets the deepest colour.
    """

    above, below = tint(1.0), tint(-1.0)

    def __init__(self, column: Column, rows: Sequence[TokenRow]) -> None:
        self.column = column
        sizes = [abs(self.away(row)) for row in rows if row.is_action]
        self.scale = max((size for size in sizes if math.isfinite(size)), default=0.0)

    def away(self, row: TokenRow) -> float:
        """Signed distance from the neutral value; 0 when the printed number is neutral."""
        same = float(_cell(row, self.column)) == self.column.neutral
        return 0.0 if same else getattr(row, self.column.attribute) - self.column.neutral

    def sign(self, row: TokenRow) -> str:
        away = self.away(row)
        if math.isnan(away):
            return _NOT_A_NUMBER
        return _EVEN if away == 0 else _UP if away > 0 else _DOWN

    def colour(self, row: TokenRow) -> str:
        away = self.away(row)
        return tint(0.0 if math.isnan(away) else away / (self.scale or 1.0))


def _cell(row: TokenRow, column: Column) -> str:
    """The number as it is printed."""
    return format(getattr(row, column.attribute), column.form)


def _sentence(trajectory: Trajectory, rows: Sequence[TokenRow], paint: Paint) -> str:
    actions, column = [row for row in rows if row.is_action], paint.column
    neutral, turns = f"{column.neutral:g}", len(trajectory.stages)
    start = (
        f"{turns} turn{'s' * (turns > 1)}, {len(actions)} action tokens; the rewards add up to "
        f"{trajectory.reward:+.2f}; "
    )
    # A number that is none comes first: it is what the reader must see.
    strongest = max(actions, key=lambda row: (math.isnan(paint.away(row)), abs(paint.away(row))))
    if not paint.away(strongest):
        return f"{start}every {column.name} is {neutral}."
    text, number = strongest.text.strip("␣↵⇥") or strongest.text, _cell(strongest, column)
    others = sum(_cell(row, column) == number for row in actions) - 1
    return (
        f"{start}the {column.name} furthest from {neutral}, {number}, is on '{text}' in turn "
        f"{strongest.turn}" + (f" (and on {others} more)." if others else ".")
    )


def _turns(
    trajectory: Trajectory, rows: Sequence[TokenRow], tokenizer: ChatTokenizer
) -> list[dict[str, Any]]:
    """What the page says of each turn; the prompt, alike in all episodes, is folded away."""
    folded = next((row.position - 1 for row in rows if row.role == "user"), 0)
    found = []
    for number, stage in enumerate(trajectory.stages, start=1):
        own = [row for row in rows[folded:] if row.turn == number]
        found.append({
            "number": number, "stage": stage, "call": _call_words(stage),
            "result": _result(trajectory, rows, number, tokenizer),
            "prompt": rows[:folded] if number == 1 else [],
            "runs": [(key, list(run)) for key, run in groupby(own, lambda row: row.is_action)],
            "written": [row for row in own if row.is_action],
        })  # fmt: skip
    return found


def _call_words(stage: Stage) -> str:
    """The call as it was understood, or the code of what was wrong with it."""
    if stage.invalid:
        return f"invalid action: {stage.invalid}"
    return call_in_words(stage.call) if stage.call else visible(stage.text)


def _result(
    trajectory: Trajectory, rows: Sequence[TokenRow], turn: int, tokenizer: ChatTokenizer
) -> str | None:
    """What the tool answered in a turn; None after the last action."""
    start = trajectory.stages[turn - 1].stop
    said = [row.position for row in rows[start:] if row.role == "tool"]
    stops = [stage.start for stage in trajectory.stages[turn : turn + 1]]
    ids = [trajectory.ids[at] for at in said if not stops or at < stops[0]]
    return tokenizer.action_text(ids) if ids else None

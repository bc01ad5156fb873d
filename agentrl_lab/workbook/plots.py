"""Figures: colour-blind-safe colours, line styles, labels at the lines, and a sentence for each.

A figure never speaks by colour alone; its sentence is its alternative text and stands below it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg", force=False)
from matplotlib.figure import Figure

# Okabe and Ito's palette: tells apart for every common kind of colour blindness.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#595959"


@dataclass(frozen=True)
class Picture:
    """A figure with the sentence that says what it shows."""

    figure: Figure
    sentence: str

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def data_uri(self) -> str:
        """The picture inside the page: nothing to load."""
        return "data:image/png;base64," + base64.b64encode(self.png()).decode()


@dataclass(frozen=True)
class Line:
    """One curve of a panel."""

    key: str
    label: str
    colour: str
    style: str = "-"


PANELS: Sequence[tuple[str, Sequence[Line]]] = (
    (
        "success (share of episodes)",
        (
            Line("validation_success", "validation, greedy", BLUE),
            Line("success_rate", "training, sampled", ORANGE, "--"),
        ),
    ),
    (
        "what goes wrong (share)",
        (
            Line("fabrication_rate", "episodes that claim a change not made", RED),
            Line("invalid_rate", "invalid actions", GREY, "--"),
        ),
    ),
    ("entropy (nats)", (
        Line("entropy_per_decision", "per decision", GREEN),
        Line("entropy_per_token", "per token", GREY, "--"),
    )),
    ("KL to the collecting policy (nats per token)", (
        Line("kl_old_max", "largest in the update", BLUE),
    )),
    ("turns per episode", (Line("turns_per_episode", "turns", BLUE),)),
    ("reward per episode", (Line("reward_per_episode", "reward", ORANGE, "--"),)),
)  # fmt: skip


def learning_curve(rows: Sequence[dict[str, Any]]) -> Picture:
    """Success and the metrics of E11 over the episodes of a run.

    Args:
        rows: metrics of a run, the row of the untrained policy first.
    """
    figure = Figure(figsize=(9.5, 8.4), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(3, 2).flat, PANELS, strict=True):
        axes.set_title(title, fontsize=10, loc="left")
        for number, line in enumerate(lines):
            _draw(axes, rows, line, number)
        axes.set_xlabel("episodes", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.legend(fontsize=8, frameon=False, handlelength=3)
    return Picture(figure, _sentence(rows))


def _draw(axes: Any, rows: Sequence[dict[str, Any]], line: Line, number: int) -> None:
    points = [(row["episodes"], row[line.key]) for row in rows if line.key in row]
    x, y = zip(*points, strict=True) if points else ((), ())
    marker = "os"[number]
    axes.plot(x, y, line.style, color=line.colour, label=line.label, marker=marker, markersize=3)


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    first, last = rows[0], rows[-1]
    text = (
        f"Over {last['episodes']:,} episodes, greedy success on the validation set goes from "
        f"{first['validation_success']:.2f} to {last['validation_success']:.2f}"
    )
    if len(rows) < 2:
        return text + "."
    return (
        f"{text}; sampled success in training from {rows[1]['success_rate']:.2f} to "
        f"{last['success_rate']:.2f}, fabrication from {rows[1]['fabrication_rate']:.2f} to "
        f"{last['fabrication_rate']:.2f}, entropy per decision from "
        f"{rows[1]['entropy_per_decision']:.2f} to {last['entropy_per_decision']:.2f} nats."
    )

"""Figures: colour-blind-safe colours, line styles, labels at the lines, and a sentence for each.

A figure never speaks by colour alone; its sentence is its alternative text and stands below it.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import matplotlib
import numpy as np

matplotlib.use("Agg", force=False)
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

DOTS_PER_INCH, COLOURS = 96, 48
# Okabe and Ito's palette: tells apart for every common kind of colour blindness.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#595959"


@dataclass(frozen=True)
class Picture:
    """A figure with the sentence that says what it shows."""

    figure: Figure
    sentence: str

    def png(self) -> bytes:
        """The picture in few colours: a third of the bytes, and nobody sees it."""
        self.figure.set_dpi(DOTS_PER_INCH)
        canvas, small = FigureCanvasAgg(self.figure), io.BytesIO()
        canvas.draw()  # not savefig, which draws a second time to find the layout
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        image.quantize(COLOURS, Image.Quantize.FASTOCTREE).save(small, format="png", optimize=True)
        return small.getvalue()

    def data_uri(self) -> str:
        """The picture inside the page: nothing to load."""
        return "data:image/png;base64," + base64.b64encode(self.png()).decode()


@dataclass(frozen=True)
class Page:
    """A piece of a page, already escaped, with the sentence that says what it shows."""

    html: str
    sentence: str


def figure_html(picture: Picture | Page) -> str:
    """A picture with alternative text and its sentence below: JupyterLab drops `alt` elsewhere."""
    if isinstance(picture, Page):
        return picture.html
    sentence = html.escape(picture.sentence, quote=True)
    style = "background:#ffffff;max-width:100%"
    return (
        f'<figure style="margin:0"><img alt="{sentence}" src="{picture.data_uri()}" '
        f'style="{style}"><figcaption>{sentence}</figcaption></figure>'
    )


def tidy(axes: Any, grid: str | None = "both") -> None:
    """No frame at the top and the right; a faint grid along "both" axes, "x", "y" or none."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(axis=grid, alpha=0.25)


def blank(sentence: str, width: float = 6.0, height: float = 2.0) -> Picture:
    """A picture that only says something: nothing to show yet."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    axes.text(0.5, 0.5, sentence, ha="center", va="center", wrap=True, fontsize=11)
    return Picture(figure, sentence)


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
    figure = Figure(figsize=(9.5, 8.4))
    figure.subplots_adjust(0.05, 0.06, 0.98, 0.97, 0.14, 0.36)  # to find it out takes as long again
    for axes, (title, lines) in zip(figure.subplots(3, 2).flat, PANELS, strict=True):
        axes.set_title(title, fontsize=10, loc="left")
        for number, line in enumerate(lines):
            _draw(axes, rows, line, number)
        axes.set_xlabel("episodes", fontsize=9)
        tidy(axes)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]), top=1.04 if "share" in title else None)
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
    named = {
        "success_rate": "sampled success in training", "fabrication_rate": "fabrication",
        "entropy_per_decision": "entropy per decision (nats)",
    }  # fmt: skip
    for key, words in named.items():
        values = [row[key] for row in rows if key in row]  # none while demonstrations are shown
        text += f", {words} from {values[0]:.2f} to {values[-1]:.2f}" if values else ""
    return text + "."


def entropy_and_kl(rows: Sequence[dict[str, Any]]) -> Picture:
    """Entropy of a decision, the KL of an update and success, one above the other.

    Args:
        rows: metrics of a run, the row of the untrained policy first.
    """
    rows = [row for row in rows if "kl_old_max" in row]
    if not rows:
        return blank("No update was made yet, so there is no entropy and no KL to show.")
    figure = Figure(figsize=(8.0, 5.6), layout="constrained")
    lines = (
        Line("entropy_per_decision", "entropy per decision (nats)", GREEN),
        Line("kl_old_max", "KL of the update (nats per token)", BLUE, "--"),
        Line("validation_success", "validation success (share)", ORANGE, "-."),
    )
    for axes, line in zip(figure.subplots(3, 1, sharex=True), lines, strict=True):
        _draw(axes, rows, line, 0)
        axes.set_title(line.label, fontsize=9, loc="left")
        tidy(axes)
        axes.set_ylim(bottom=0)
    axes.set_xlabel("episodes")
    first, last = rows[0], rows[-1]
    sentence = (
        f"Entropy per decision goes from {first['entropy_per_decision']:.2f} to "
        f"{last['entropy_per_decision']:.2f} nats while success goes from "
        f"{first['validation_success']:.2f} to {last['validation_success']:.2f}; the largest KL of "
        f"an update is {max(row['kl_old_max'] for row in rows):.3f} nats per token."
    )
    return Picture(figure, sentence)


STYLES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (RED, ":"))


def arms(
    rows: Sequence[dict[str, Any]], metrics: Mapping[str, str], only: Sequence[str] = ()
) -> Picture:
    """Metrics of an experiment: a thin line for each seed, a thick one for the mean of an arm.

    Args:
        rows: rows of experiments.run_experiment.
        metrics: name of experiments.CURVE -> label of its axis, with the unit; a panel each.
        only: arms to draw, in this order; all of them when empty.

    Raises:
        ValueError: more arms than lines that can be told apart.
    """
    figure = Figure(figsize=(4.6 * max(2, len(metrics)), 3.8))
    figure.subplots_adjust(0.08, 0.14, 0.98, 0.96, wspace=0.24)  # as in learning_curve
    names, told = only or _names(rows), []
    if len(names) > len(STYLES):
        raise ValueError(f"only must name at most {len(STYLES)} arms, got {', '.join(names)}")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, (metric, label) in zip(panels, metrics.items(), strict=True):
        ends = []
        for arm, style in zip(names, STYLES, strict=False):
            curves = [row["curve"] for row in rows if row["arm"] == arm]
            ends.append(f"{arm} {_draw_arm(axes, curves, metric, arm, style):.2f}")
        axes.set(xlabel="episodes", ylabel=label)
        axes.legend(frameon=False, handlelength=4, fontsize=9)
        tidy(axes)
        told.append(f"{label}, mean over seeds at the end: {'; '.join(ends)}.")
    return Picture(figure, " ".join(told))


def _draw_arm(
    axes: Any, curves: Sequence[dict[str, Any]], metric: str, arm: str, drawn: tuple[str, str]
) -> float:
    """Draws the seeds of an arm and their mean; returns where the mean ends."""
    (colour, style), x = drawn, curves[0]["episodes"]
    for curve in curves:
        axes.plot(x, _numbers(curve[metric]), style, color=colour, alpha=0.25, linewidth=0.8)
    mean = np.mean([_numbers(curve[metric]) for curve in curves], axis=0)
    axes.plot(x, mean, style, color=colour, linewidth=2.5, label=f"{arm} ({len(curves)} seeds)")
    return float(mean[-1])


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows))


def _numbers(values: Sequence[float | None]) -> np.ndarray:
    """None, where a metric is not there yet, becomes a gap."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


LEAST_ROWS = 6
"""Room for so many names in every picture, so that a panel keeps its height."""
SERIES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "D"))


class Ranged(Protocol):
    """A number with its interval."""

    value: float
    low: float
    high: float


def ranges(series: Mapping[str, Mapping[str, Ranged]], label: str) -> Picture:
    """Numbers with their intervals, one line a name: what moved, and how sure that is.

    Args:
        series: word of the legend -> name of the line -> number; all with the same names.
        label: of the horizontal axis, with the unit.
    """
    names = list(next(iter(series.values())))
    figure = Figure(figsize=(9.0, 1.0 + 0.42 * max(len(names), LEAST_ROWS)), layout="constrained")
    axes = figure.subplots()
    for number, ((word, points), (colour, mark)) in enumerate(
        zip(series.items(), SERIES, strict=False)
    ):
        rows = [row + 0.24 * (number - (len(series) - 1) / 2) for row in range(len(names))]
        ends = [points[name] for name in names]
        axes.hlines(rows, [e.low for e in ends], [e.high for e in ends], color=colour, linewidth=2)
        axes.plot([e.value for e in ends], rows, mark, color=colour, label=word, markersize=6)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label)
    tidy(axes, grid="x")
    if len(series) > 1:  # outside: a mark of the legend must not pass for a point
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    return Picture(figure, f"{label}: {_in_words(series, names)}.")


def _in_words(series: Mapping[str, Mapping[str, Ranged]], names: Sequence[str]) -> str:
    def line(name: str) -> str:
        return ", ".join(f"{points[name].value:.2f} ({word})" for word, points in series.items())

    return "; ".join(f"{name} {line(name)}" for name in names)

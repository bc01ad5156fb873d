"""The figures of notebook 04. Each takes numbers that were computed elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from agentrl_lab.workbook.lessons.credit import Step
from agentrl_lab.workbook.plots import BLUE, GREEN, GREY, ORANGE, RED, Picture, tidy

CLIP_SHOWN = (0.4, 1.6)
"""Ratios that the picture of the clip has room for."""


def _axes(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    found = figure.subplots(rows, columns, squeeze=False)
    for axes in found.flat:
        tidy(axes)
    return figure, found


def moved_tokens(
    rows: Sequence[tuple[str, Sequence[str], Sequence[float], Sequence[float]]],
) -> Picture:
    """Probability of each action token before and after a step.

    Args:
        rows: for each trajectory its name, its tokens, and their probabilities before and after.
    """
    figure, found = _axes(11.0, 3.0 * len(rows), len(rows))
    words = []
    for axes, (name, tokens, before, after) in zip(found[:, 0], rows, strict=True):
        place = np.arange(len(tokens))
        change = np.array(after) - np.array(before)
        axes.bar(place, change, color=np.where(change >= 0, BLUE, ORANGE))
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.set_xticks(place, tokens, rotation=90, fontsize=9, family="monospace")
        axes.set_ylabel("change of probability", fontsize=8)
        axes.set_title(name, fontsize=10, loc="left")
        top = int(np.abs(change).argmax())
        words.append(
            f"{name}: {int((np.abs(change) > 0.01).sum())} of {len(tokens)} tokens moved by more "
            f"than 0.01, furthest '{tokens[top]}' from {before[top]:.2f} to {after[top]:.2f}"
        )
    return Picture(figure, "; ".join(words) + ".")


def credit(
    exact: Mapping[Step, float], found: Mapping[Step, Tensor], shown: Sequence[Step]
) -> Picture:
    """Exact advantages beside what GAE says: mean and spread of its single estimates."""
    figure, axes = _axes(8.6, 3.6)
    axes = axes[0, 0]
    for row, step in enumerate(shown[::-1]):
        numbers = found[step]
        mean, spread = float(numbers.mean()), float(numbers.std()) if len(numbers) > 1 else 0.0
        axes.plot([mean - spread, mean + spread], [row, row], "-", color=ORANGE, linewidth=5,
                  alpha=0.45, solid_capstyle="butt")  # fmt: skip
        axes.plot(mean, row, "o", color=RED, markersize=7)
        axes.plot(exact[step], row, "D", color=BLUE, markersize=9, markerfacecolor="none",
                  markeredgewidth=2)  # fmt: skip
    names = [f"{state.removeprefix('close > ')} | {action}" for state, action in shown[::-1]]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlim(-1.7, 2.4)
    axes.set_xlabel("advantage (reward): exact, hollow diamond; GAE mean, dot; one spread, bar")
    away = [abs(float(found[step].mean()) - exact[step]) for step in shown]
    wide = [float(found[step].std()) for step in shown if len(found[step]) > 1]
    return Picture(
        figure,
        f"The means of GAE are {np.mean(away):.2f} away from the exact advantages on average "
        f"(at most {max(away):.2f}); a single estimate spreads by {np.mean(wide):.2f}.",
    )


def running_mean(found: Mapping[Step, Tensor], exact: Mapping[Step, float]) -> Picture:
    """How the mean of the estimates closes in on the exact advantage, with its 95% interval."""
    figure, axes = _axes(8.6, 3.4)
    axes, words = axes[0, 0], []
    for (step, numbers), colour, style in zip(
        found.items(), (BLUE, ORANGE, GREEN), ("-", "--", "-."), strict=False
    ):
        n = np.unique(np.geomspace(10, len(numbers), 60).astype(int))
        x = numbers.double().numpy()
        mean = np.cumsum(x)[n - 1] / n
        half = 1.96 * np.array([x[:k].std(ddof=1) for k in n]) / np.sqrt(n)
        axes.fill_between(n, mean - half, mean + half, color=colour, alpha=0.2)
        axes.plot(n, mean, style, color=colour, label=" | ".join(step))
        axes.axhline(exact[step], color=colour, linewidth=0.9, linestyle=":")
        words.append(
            f"{' | '.join(step)}: {mean[-1]:+.3f} (95%: {mean[-1] - half[-1]:+.3f} to "
            f"{mean[-1] + half[-1]:+.3f}) after {len(x):,}, exact {exact[step]:+.3f}"
        )
    axes.set(xscale="log", xlabel="estimates (one per visit)", ylabel="advantage (reward)")
    axes.legend(frameon=False, fontsize=9, handlelength=4)
    return Picture(figure, "Dotted lines are exact. " + "; ".join(words) + ".")


def clipped_gain(ratio: Tensor, advantage: Tensor, clip_ratio: float) -> Picture:
    """The clipped gain against the ratio for both signs, and where real tokens lie."""
    figure, found = _axes(8.6, 3.0, 1, 2)
    x, words = np.linspace(*CLIP_SHOWN, 200), []
    for axes, sign, name in zip(found[0], (1, -1), ("A > 0", "A < 0"), strict=True):
        gain = np.minimum(x * sign, x.clip(1 - clip_ratio, 1 + clip_ratio) * sign)
        axes.plot(x, gain, color=BLUE)
        axes.plot(x, x * sign, ":", color=GREY)
        own = ratio[advantage * sign > 0].numpy()
        seen = own[(own >= x[0]) & (own <= x[-1])]
        axes.plot(seen, np.interp(seen, x, gain), "|", color=RED, markersize=12)
        title = f"{name}: {len(seen)} real tokens (red ticks), {len(own) - len(seen)} outside"
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("ratio new / old")
        flat = (own > 1 + clip_ratio) if sign > 0 else (own < 1 - clip_ratio)
        words.append(f"for {name} {int(flat.sum())} of {len(own)} tokens lie on the flat part")
    found[0, 0].set_ylabel("gain / |A|")
    return Picture(figure, f"Clip at {clip_ratio:g}: " + " and ".join(words) + ".")


def kl_estimators(exact: float, found: Mapping[str, np.ndarray]) -> Picture:
    """Three estimators of one KL: how their averages over a batch spread around it.

    Args:
        exact: nats per token.
        found: name -> averages of many resampled batches.
    """
    figure, axes = _axes(8.0, 2.8)
    axes, words = axes[0, 0], []
    for row, (name, numbers) in enumerate(found.items()):
        axes.plot(numbers, np.full(len(numbers), row) + np.linspace(-0.28, 0.28, len(numbers)),
                  ".", color=(BLUE, ORANGE, GREEN)[row], alpha=0.4, markersize=3)  # fmt: skip
        negative = float((numbers < 0).mean())
        words.append(
            f"{name} {numbers.mean():.4f} with spread {numbers.std():.4f}, negative in "
            f"{negative:.0%} of the batches"
        )
    axes.axvline(exact, color=GREY, linestyle="--")
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xlabel("KL estimate of one batch (nats per token); dashed: exact")
    return Picture(figure, f"Exact {exact:.4f}; " + "; ".join(words) + ".")


def broken_curves(
    name: str, right: Mapping[str, np.ndarray], broken: Mapping[str, np.ndarray]
) -> Picture:
    """Success and the critic's word over a training of the toy desk, with and without a fault."""
    figure, found = _axes(8.6, 2.8, 1, 2)
    titles = {"success": "right answers (share)", "value": "value of the start"}
    for axes, (key, title) in zip(found[0], titles.items(), strict=True):
        axes.plot(right[key], color=BLUE, label="right")
        axes.plot(broken[key], "--", color=RED, label=name)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("update")
    found[0, 0].set_ylim(0, 1.05)
    found[0, 1].set_ylim(-1.3, 1.8)
    found[0, 0].legend(frameon=False, fontsize=9)
    ends = [float(curves["success"][-10:].mean()) for curves in (right, broken)]
    values = [float(curves["value"][-1]) for curves in (right, broken)]
    return Picture(
        figure,
        f"{name}: over the last ten updates {ends[1]:.2f} right answers (without the fault "
        f"{ends[0]:.2f}); the value of the start ends at {values[1]:.2f} ({values[0]:.2f}).",
    )

"""Alarm lines on a training log, and where a policy's tokens go.

A monitor reads rows of metrics and nothing else, so it works on any project's log: its line is
calibrated on some runs and judged on others.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from agentrl_lab.config import nearest

if TYPE_CHECKING:  # reading a log takes no torch
    from agentrl_lab.learner.trajectories import Trajectory

Row = Mapping[str, Any]
Rows = Sequence[Row]
"""The metrics of one run, update by update."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """Fires where the mean of a figure over the last updates lies above a line.

        level_t = mean(x_(t-window+1), ..., x_t);  alarm: the first t with level_t > line

    With `falling`, low figures are the alarming ones: x and the line change their signs. A figure
    that is not finite is the most alarming one.
    """

    metric: str
    """A figure of each row; rows before the first update may lack it."""
    window: int = 3
    line: float = math.inf
    """Infinite until it is calibrated: then it never fires."""
    falling: bool = False

    def __post_init__(self) -> None:
        whole = isinstance(self.window, Integral) and not isinstance(self.window, bool)
        if not whole or self.window < 1:
            raise ValueError(f"window must be at least 1, a whole number, got {self.window!r}")
        if not isinstance(self.line, Real) or isinstance(self.line, bool) or self.line != self.line:
            raise ValueError(f"line must be a number, infinite until calibrated, got {self.line!r}")

    def levels(self, rows: Rows) -> list[float | None]:
        """The level after each row; None as long as the window is not full.

        Raises:
            ValueError: no row has the figure; the nearest one is offered.
            TypeError: a figure is no number, or `rows` is something else than one run.
        """
        if not all(isinstance(row, Mapping) for row in rows):
            raise TypeError(f"rows must be one run, a dict of metrics per update, got {rows!r:.60}")
        values = [row.get(self.metric) for row in rows]
        if rows and all(value is None for value in values):
            names = {name for row in rows for name, value in row.items() if value is not None}
            known = nearest(self.metric, names) if names else "they have no figures at all"
            raise ValueError(f"no row has {self.metric!r}: {known}")
        levels = [None if value is None else self._level(value) for value in values]
        ends = range(1, len(levels) + 1)
        return [_mean(levels[max(0, end - self.window) : end], self.window) for end in ends]

    def _level(self, value: Any) -> float:
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise TypeError(f"{self.metric} must be a number, got {value!r}: float() it first")
        huge = isinstance(value, int) and abs(value) > 1e308  # more than a float may hold
        alarming = huge or not math.isfinite(value)
        return math.inf if alarming else -float(value) if self.falling else float(value)

    def alarm(self, rows: Rows) -> int | None:
        """Place of the first row whose level lies above the line."""
        levels = enumerate(self.levels(rows))
        return next((at for at, level in levels if level is not None and level > self.line), None)

    def peak(self, rows: Rows) -> float:
        """The highest level of a run; minus infinity where the window is never full."""
        return max((v for v in self.levels(rows) if v is not None), default=-math.inf)


def _mean(values: Sequence[float | None], window: int) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) != window:
        return None
    mean = sum(known) / window
    return mean if math.isfinite(mean) else sum(value / window for value in known)


def calibrated(monitor: Monitor, healthy: Sequence[Rows], broken: Sequence[Rows]) -> Monitor:
    """The monitor with the line that tells two sets of runs apart best.

    Fewest runs on the wrong side, false alarms counted twice (who cries wolf is switched off);
    among equals the middle of the widest gap between two peaks, and last a line that none of these
    runs reaches.

    Args:
        monitor: figure and window.
        healthy: logs of runs that must not fire.
        broken: logs of runs that must.

    Raises:
        ValueError: one of the two is empty, or holds a run that never fills the window.
    """
    calm, wild = ([monitor.peak(rows) for rows in runs] for runs in (healthy, broken))
    if not calm or not wild or -math.inf in (*calm, *wild):
        raise ValueError("healthy and broken must each hold at least one run, and fill the window")
    peaks = sorted(peak for peak in {*calm, *wild} if peak < math.inf) or [0.0]

    def wrong(line: float) -> int:
        return 2 * sum(p > line for p in calm) + sum(p <= line for p in wild)

    gaps = [*itertools.pairwise(peaks), (peaks[-1], peaks[-1])]
    best = min(gaps, key=lambda gap: (wrong(gap[0]), gap[0] - gap[1]))
    middle = max(best[0], best[0] / 2 + best[1] / 2)  # their sum may be infinite
    return replace(monitor, line=middle if middle < best[1] else best[0])


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a monitor did on runs that its line was not made from."""

    hits: int
    broken: int
    false_alarms: int
    healthy: int
    notice: tuple[int | None, ...]
    """For each broken run that was caught and fell: updates from the alarm to the fall."""

    @property
    def holds(self) -> bool:
        """Whether at least 9 in 10 broken runs were caught, and at most 1 in 20 others flagged."""
        return self.hits >= 0.9 * self.broken > 0 and self.false_alarms <= 0.05 * self.healthy


def judged(
    monitor: Monitor, healthy: Sequence[Rows], broken: Sequence[Rows], falls: Sequence[int | None]
) -> Judgement:
    """Counts hits, false alarms and updates of notice.

    Args:
        monitor: with its line.
        healthy: logs that must not fire.
        broken: logs that must.
        falls: for each broken one the place of its fall, None where it never fell.

    Raises:
        ValueError: there are more or fewer falls than broken runs.
    """
    if len(falls) != len(broken):
        raise ValueError(f"falls must be {len(broken)}, one or None a broken run, got {len(falls)}")
    fired = [monitor.alarm(rows) for rows in broken]
    notice = [
        fall - alarm for alarm, fall in zip(fired, falls, strict=True) if None not in (alarm, fall)
    ]
    return Judgement(
        hits=sum(alarm is not None for alarm in fired),
        broken=len(broken),
        false_alarms=sum(monitor.alarm(rows) is not None for rows in healthy),
        healthy=len(healthy),
        notice=tuple(notice),
    )


# Where the tokens go (F4)

FATES = USEFUL, WRONG, MALFORMED, CUT, HOPELESS = "useful", "wrong", "malformed", "cut", "hopeless"
"""useful: a valid action after which success is still possible, or there. wrong: a valid action
that ended all hope. malformed: an action that was none. cut: stopped by a token limit. hopeless:
whatever was written after success had become impossible."""


def tokens_by_fate(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """How many of a policy's tokens went where; they add up to all its tokens.

    Args:
        trajectories: episodes as the collector or a demonstration leaves them.

    Source: chapter F4 and C3.
    """
    found = Counter(dict.fromkeys(FATES, 0))
    for trajectory in trajectories:
        for stage, fate in zip(trajectory.stages, _fates(trajectory), strict=True):
            found[fate] += stage.stop - stage.start
    return dict(found)


def _fates(trajectory: Trajectory) -> Iterator[str]:
    hopes = [stage.was_winnable for stage in trajectory.stages[1:]]
    hopes.append(trajectory.outcome.success)
    cut = trajectory.stop is not None and trajectory.stop.truncated
    for stage, hope in zip(trajectory.stages, hopes, strict=True):
        if not stage.was_winnable:
            yield HOPELESS
        elif stage.was_cut or (cut and stage is trajectory.stages[-1]):
            yield CUT
        elif stage.invalid:
            yield MALFORMED
        else:
            yield USEFUL if hope else WRONG

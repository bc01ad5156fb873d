"""Whether a notebook's run was well: exit code, errors (hidden ones too), result file, claims.

The statuses that papermill stores are not looked at: after a time limit or a dead kernel they all
say "completed".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from agentrl_lab.workbook.execution import Ended, Limits
from agentrl_lab.workbook.sources import ADDED_TAGS, Source, tags

WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
DEAD_KERNEL = 138  # papermill's exit code
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that went wrong: where (cell numbers count from 1) and why."""

    notebook: str
    cell: int
    line: str
    cause: str

    @classmethod
    def at(cls, source: Source, cell: int, cause: str) -> Failure:
        return cls(source.name, cell, source.line(cell), cause)

    def __str__(self) -> str:
        return f"{self.notebook}: cell {self.cell} ({self.line}): {self.cause}"


def failures(
    source: Source, executed: Any | None, ended: Ended, result: Path, limits: Limits
) -> list[Failure]:
    """All that went wrong in a run, what stopped it first; empty if all was well.

    Args:
        source: what was run.
        executed: its output, None if there is none.
        ended: how papermill ended.
        result: path of the result file, whether it exists or not.
        limits: that were set.
    """
    cells = original_cells(executed) if executed else []
    stopped = _stopped(ended, limits)
    found = [(ended.cell, stopped)] if stopped else list(_errors(cells))
    if not found and ended.code:
        found.append((ended.cell, _last_words(cells, ended)))
    if executed:
        found += _hidden_errors(executed, cells, source.last_cell)
        found += [] if found else _complaints(cells)
    found = found or [(source.last_cell, cause) for cause in _unmet(result, bool(executed))]
    return [Failure.at(source, number, cause) for number, cause in found]


def read_executed(path: Path) -> Any | None:
    """An output notebook, None if it is not there or was cut while it was written."""
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, OSError, AttributeError, TypeError):
        return None


def original_cells(executed: Any) -> list[Any]:
    """The cells of an output that its source has too: their numbers are the source's."""
    return [cell for cell in executed.cells if not tags(cell) & ADDED_TAGS]


def _stopped(ended: Ended, limits: Limits) -> str | None:
    """What ended the kernel from outside; an error that it then left in a cell is no cause."""
    if ended.overdue:
        return f"the notebook was not done after {limits.notebook} s (--notebook-timeout)"
    if ended.code == DEAD_KERNEL:
        return "the kernel died: ended by the cell, killed, or out of memory"
    if ended.code and "CellTimeoutError" in ended.log:
        return f"the cell was not done after {limits.cell} s (--cell-timeout)"
    return None


def _errors(cells: list[Any]) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(cells, 1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                yield number, _in_words(output)


def _in_words(output: Any) -> str:
    return f"{output.ename}: {(_lines(output.evalue) or [''])[0]}"


def _last_words(cells: list[Any], ended: Ended) -> str:
    outputs = cells[ended.cell - 1].get("outputs", []) if len(cells) >= ended.cell else []
    said = "\n".join(out.text for out in outputs if out.get("name") == "stderr") or ended.log
    return f"papermill ended with exit code {ended.code}: {(_lines(said) or ['no word'])[-1]}"


def _lines(text: str) -> list[str]:
    return [line[:200] for line in COLOURS.sub("", text).strip().splitlines()]


def _complaints(cells: list[Any]) -> Iterator[tuple[int, str]]:
    """Warnings, and errors of threads: they end nothing and stand on stderr."""
    for number, cell in enumerate(cells, 1):
        said = "\n".join(o.text for o in cell.get("outputs", []) if o.get("name") == "stderr")
        if lines := _lines(said):
            yield number, f"it wrote to stderr: {lines[-1]}"


def _hidden_errors(executed: Any, cells: list[Any], last: int) -> Iterator[tuple[int, str]]:
    """Errors that Output widgets swallowed; papermill ends with 0 all the same."""
    state = executed.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    shown = {number: _reachable(cell, state) for number, cell in enumerate(cells, 1)}
    for model, content in state.items():
        for output in content.get("state", {}).get("outputs", []):
            if output.get("output_type") == "error":
                number = next((n for n, models in shown.items() if model in models), None)
                where = "hidden in a widget" + (" that no cell shows" if number is None else "")
                yield number or last, f"{where}: {_in_words(nbformat.from_dict(output))}"


def _reachable(cell: Any, state: dict[str, Any]) -> set[str]:
    """The widgets that a cell shows, those inside others included."""
    views = [out.get("data", {}).get(WIDGET_VIEW) for out in cell.get("outputs", [])]
    found, ahead = set(), [view["model_id"] for view in views if view]
    while ahead:
        model = ahead.pop()
        if model not in found:
            found.add(model)
            ahead += re.findall(r"IPY_MODEL_(\w+)", json.dumps(state.get(model, {})))
    return found


def _unmet(result: Path, executed: bool) -> list[str]:
    try:
        content = json.loads(result.read_text(encoding="utf-8")) if executed else None
        claims = content["claims"] if content["finished"] is True else {}
    except (OSError, ValueError, TypeError, KeyError):
        return ["no result file: the last cell did not reach its end"]
    if not claims:
        return ["the result file holds no claims: a notebook must check what it says"]
    return [f"claim does not hold: {words}" for words, held in claims.items() if held is not True]

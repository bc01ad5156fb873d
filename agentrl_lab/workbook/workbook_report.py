"""What a run of the workbook leaves for people and machines: one HTML page, one JUnit file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from agentrl_lab.workbook.pages import render
from agentrl_lab.workbook.regression import Value
from agentrl_lab.workbook.verdict import Failure, original_cells

SHOWN_RUNS = 20
WIDTH, HEIGHT = 160, 32
UNPRINTABLE = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold."""


@dataclass(frozen=True)
class NotebookRun:
    """One notebook's run, judged.

    Args:
        name: of the notebook.
        seconds: it took.
        parameters: that were given.
        failures: in running.
        values: recorded ones and missing ones, with their bands.
        executed: its output, None if there is none.
    """

    name: str
    seconds: float
    parameters: Mapping[str, Any]
    failures: Sequence[Failure]
    values: Sequence[Value]
    executed: Any | None

    @property
    def ok(self) -> bool:
        return not self.failures and not any(value.out for value in self.values)

    def entry(self) -> dict[str, Any]:
        """What the history keeps."""
        values = {value.name: value.value for value in self.values if value.value is not None}
        return {
            "ok": self.ok, "seconds": round(self.seconds, 1), "parameters": self.parameters,
            "values": values,
        }  # fmt: skip


def spark(runs: Sequence[Mapping[str, Any]], value: Value) -> dict[str, Any] | None:
    """A line through the last runs and the band behind it, in pixels; None for text or nothing.

    Args:
        runs: of the notebook, oldest first.
        value: whose past to draw.
    """
    seen = [run["values"][value.name] for run in runs if value.name in run["values"]][-SHOWN_RUNS:]
    if not seen or any(isinstance(number, str) for number in seen):
        return None
    edges = [value.band.high, value.band.low] if value.band else []
    low, high = min(*seen, *edges, seen[0]), max(*seen, *edges, seen[0])
    step = (WIDTH - 8) / (SHOWN_RUNS - 1)

    def y(number: float) -> float:
        return round(3 + (high - number) / ((high - low) or 1.0) * (HEIGHT - 6), 1)

    points = [(round(4 + place * step, 1), y(number)) for place, number in enumerate(seen)]
    words = "last runs: " + ", ".join(f"{number:.4g}" for number in seen)
    return {"points": points, "band": [y(edge) for edge in edges], "words": words}


def figures(executed: Any | None) -> list[tuple[int, str, str]]:
    """(cell, data URI, alternative text) of each picture in an executed notebook."""
    found = []
    for number, cell in enumerate(original_cells(executed) if executed else [], 1):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                png = re.sub(r"\s", "", data["image/png"])
                found.append((number, f"data:image/png;base64,{png}", f"figure of cell {number}"))
            elif "text/html" in data:
                found += [(number, *image) for image in _Images.of(data["text/html"])]
    return found


class _Images(HTMLParser):
    """Collects the pictures that a piece of HTML carries inside itself."""

    @classmethod
    def of(cls, html: str) -> list[tuple[str, str]]:
        parser = cls()
        parser.found = []
        parser.feed(html)
        return parser.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "img" and (given.get("src") or "").startswith("data:image/"):
            self.found.append((given["src"], given.get("alt") or ""))


def write_html(path: Path, **parts: Any) -> None:
    """One page that loads nothing; parts are those that the template names."""
    page = render("workbook_report.html.j2", figures=figures, **parts)
    path.write_text(page, encoding="utf-8")


def write_junit(path: Path, runs: Sequence[NotebookRun]) -> None:
    """A test case per notebook and per banded value."""
    suite = ElementTree.Element("testsuite", name="workbook")
    for run in runs:
        case = _case(suite, run.name, "runs", [str(failure) for failure in run.failures])
        case.set("time", f"{run.seconds:.1f}")
        for value in run.values:
            _case(suite, run.name, value.name, [str(value)] if value.out else [])
    for attribute, tag in (("tests", "testcase"), ("failures", "failure")):
        suite.set(attribute, str(len(list(suite.iter(tag)))))
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _case(suite: Any, notebook: str, name: str, causes: Sequence[str]) -> Any:
    case = ElementTree.SubElement(suite, "testcase", classname=notebook, name=name)
    if causes:  # one failure a case, or counts are wrong where the file is read
        message = UNPRINTABLE.sub("?", "\n".join(causes))
        ElementTree.SubElement(case, "failure", message=message)
    return case

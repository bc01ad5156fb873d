"""Tiny notebooks for the tests of runner and regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from agentrl_lab.workbook.execution import EXECUTED, RESULT, Ended
from agentrl_lab.workbook.recording import RECORD_MIME, write_json

PARAMETERS = """\
SEED: int = 0  # root of all randomness
PROFILE: str = "fast"  # smoke, fast or full
STRICT: bool = False  # exercises must be solved"""
FINISH = 'from agentrl_lab.workbook.recording import finish\nfinish({"it ran": True})'


def notebook(*cells: str, parameters: str | None = PARAMETERS, kernel: str = "python3") -> Any:
    """A title, a parameters cell, then the given code cells: the first of them is cell 3."""
    language = {"name": "python3", "display_name": "Python 3", "language": "python"}
    node = v4.new_notebook(metadata={"kernelspec": language | {"name": kernel}})
    node.cells.append(v4.new_markdown_cell("# A title"))
    if parameters is not None:
        tagged = {"tags": ["parameters"]}
        node.cells.append(v4.new_code_cell(parameters, metadata=tagged))
    node.cells += [v4.new_code_cell(cell) for cell in cells]
    return node


def write(folder: Path, name: str, *cells: str, **more: Any) -> Path:
    """A notebook's file; its path."""
    path = folder / f"{name}.ipynb"
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(*cells, **more), path)
    return path


def workplace(folder: Path) -> Path:
    """A data folder that the package takes for its own; notebooks lie beside it."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "phrasings.json").write_text("{}")
    (folder / "notebooks").mkdir(exist_ok=True)
    return data


def recorded(**values: Any) -> Any:
    """The output of record(**values)."""
    return v4.new_output("display_data", {RECORD_MIME: values, "text/plain": "recorded"})


class FakeExecution:
    """Takes the place of `execute`: outputs without a kernel.

    Args:
        values: parameters -> what the notebook records.
        claims: what it claims.
    """

    def __init__(self, values: Any, claims: dict[str, bool] | None = None) -> None:
        self.values, self.claims, self.ran = values, claims or {"it ran": True}, []

    def __call__(self, source, values, folder, limits, say) -> Ended:
        self.ran.append((source.name, values))
        folder.mkdir(parents=True, exist_ok=True)
        node = nbformat.from_dict(source.node)
        node.cells[-1].outputs = [recorded(**self.values(values))]
        nbformat.write(node, folder / EXECUTED)
        write_json(folder / RESULT, {"claims": self.claims, "finished": True})
        return Ended(0, 1.0, source.last_cell, False, "")

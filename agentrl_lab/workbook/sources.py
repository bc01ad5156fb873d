"""Finds the notebooks of the workbook and refuses, before anything runs, what cannot be trusted.

Refused: outputs in place of sources, kernels other than python3, shell lines (a failed one leaves
exit code 0), and parameters cells that papermill would not inject into as their reader expects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
from IPython.core.inputtransformer2 import TransformerManager

from agentrl_lab.config import data_dir, nearest
from agentrl_lab.workbook.parameters import KINDS, Declared

KERNEL = "python3"
ADDED_TAGS = {"injected-parameters", "papermill-error-cell-tag"}
"""Tags of the cells that papermill adds: an output has them, a source does not."""
ALWAYS = {"PROFILE": "str", "STRICT": "bool"}
SHELL_CALLS = (".system(", ".getoutput(", ".run_line_magic('sx'", ".run_line_magic('system'")


@dataclass(frozen=True)
class Source:
    """A notebook that may be run.

    Args:
        name: of its file, without the ending.
        path: of its file.
        node: as nbformat reads it.
        parameters: what its parameters cell declares, by name.
        parameters_cell: number of that cell, from 1.
    """

    name: str
    path: Path
    node: Any
    parameters: dict[str, Declared]
    parameters_cell: int

    def line(self, number: int) -> str:
        """The first line of a cell, to recognise it by."""
        lines = self.node.cells[number - 1].source.strip().splitlines()
        return lines[0][:60] if lines else ""

    @property
    def last_cell(self) -> int:
        """Number of the last code cell, which writes the result file."""
        return max(n for n, cell in enumerate(self.node.cells, 1) if cell.cell_type == "code")


def notebooks_folder() -> Path:
    """The folder of the notebooks, beside data/."""
    return data_dir().parent / "notebooks"


def find_notebooks(names: Sequence[str], folder: Path) -> list[Path]:
    """The files behind names such as 00, 00_be_the_policy or a path; all of the folder for none.

    Raises:
        ValueError: a name is not known (the nearest is offered), or two files have one name.
        FileNotFoundError: the folder holds no notebook.
    """
    known = {path.stem: path for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))}
    if not names and not known:
        raise FileNotFoundError(f"no notebooks in {folder}: build them by `make notebooks`")
    found = {_find(name, known).resolve(): None for name in names or known}
    stems = [path.stem for path in found]
    for stem in stems:
        if stems.count(stem) > 1:
            raise ValueError(f"two notebooks are called {stem}: run them one after the other")
    return list(found)


def _find(name: str, known: dict[str, Path]) -> Path:
    if name.endswith(".ipynb"):
        if not Path(name).is_file():
            raise ValueError(f"there is no notebook {name}: {nearest(Path(name).stem, known)}")
        return Path(name)
    for stem, path in known.items():
        if name in (stem, stem[:2]):
            return path
    raise ValueError(f"no notebook is called {name!r}: {nearest(name, known)}")


def read_source(path: Path) -> Source:
    """A notebook, checked.

    Raises:
        ValueError: it may not be run; the message names the cell and what to do.
    """
    try:
        node = nbformat.read(path, as_version=4)
    except (ValueError, OSError, AttributeError, TypeError, nbformat.ValidationError) as error:
        raise ValueError(f"{path} is not a notebook: {str(error).splitlines()[0]}") from error
    _refuse_output(path, node)
    _refuse_kernel(path, node)
    for number, cell in enumerate(node.cells, 1):
        if cell.cell_type == "code":
            _refuse_shell(f"{path.stem}: cell {number}", cell.source)
    number = _parameters_cell(path, node)
    declared = _declared(f"{path.stem}: cell {number}", path, node.cells[number - 1].source)
    return Source(path.stem, path, node, declared, number)


def tags(cell: Any) -> set[str]:
    """The tags of a cell."""
    return set(cell.metadata.get("tags", []))


def _refuse_output(path: Path, node: Any) -> None:
    if "papermill" in node.metadata or any(tags(cell) & ADDED_TAGS for cell in node.cells):
        raise ValueError(f"{path} is the output of a run: run the notebook it was made from")


def _refuse_kernel(path: Path, node: Any) -> None:
    kernel = node.metadata.get("kernelspec", {})
    language = node.metadata.get("language_info", {}).get("name") or kernel.get("language")
    if kernel.get("name") != KERNEL or language != "python":
        raise ValueError(
            f"{path.stem}: its kernel is {kernel.get('name')!r} ({language}), expected {KERNEL!r} "
            "(python): choose the kernel Python 3 in JupyterLab and save"
        )


def _refuse_shell(where: str, source: str) -> None:
    code = TransformerManager().transform_cell(source)
    if any("get_ipython()" + call in code for call in SHELL_CALLS):
        raise ValueError(
            f"{where}: it has a shell line (!...), whose failure would pass unnoticed: "
            "use subprocess.run(..., check=True)"
        )


def _parameters_cell(path: Path, node: Any) -> int:
    numbers = [n for n, cell in enumerate(node.cells, 1) if "parameters" in tags(cell)]
    if len(numbers) != 1 or node.cells[numbers[0] - 1].cell_type != "code":
        raise ValueError(
            f"{path.stem}: expected one code cell tagged 'parameters', got cells {numbers}: "
            "without it papermill injects nothing that holds"
        )
    return numbers[0]


def _declared(where: str, path: Path, source: str) -> dict[str, Declared]:
    """What the parameters cell declares: each line NAME: type = literal  # help."""
    seen = papermill.inspect_notebook(str(path))
    declared = {}
    for name in _literal_names(where, source):
        kind = seen[name]["inferred_type_name"] if name in seen else None
        if kind not in KINDS:
            raise ValueError(
                f"{where}: {name} has type {kind}, expected one of {', '.join(KINDS)}: "
                f"write {name}: int = 0  # what it is"
            )
        declared[name] = Declared(kind, optional=seen[name]["default"] == "None")
    for name, kind in ALWAYS.items():
        if name not in declared or declared[name].kind != kind:
            raise ValueError(f"{where}: the parameters cell must declare {name}: {kind}")
    return declared


def _literal_names(where: str, source: str) -> Iterable[str]:
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"{where}: line {error.lineno} is not Python") from error
    for statement in statements:
        target = getattr(statement, "target", None) or (getattr(statement, "targets", [None])[0])
        try:
            ast.literal_eval(getattr(statement, "value", statement))
            yield target.id
        except (ValueError, AttributeError) as error:
            raise ValueError(
                f"{where}: line {statement.lineno} is no `NAME: type = literal`. A value derived "
                "here would ignore injected parameters: derive it in a later cell"
            ) from error

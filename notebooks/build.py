"""Builds the notebooks from notebooks/src: `python notebooks/build.py [--check] [NAME...]`.

Each source gives two notebooks. The student's has every solution folded away as text and carries
the outputs of the fast profile; the solved one has the solutions in place of the stubs, no outputs.
Nobody edits an .ipynb. The outputs of a student notebook are kept as long as its code is the same.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
SOURCES, SOLVED = HERE / "src", HERE / "solved"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
LANGUAGE = {  # the whole of what JupyterLab saves, or it marks the notebook as changed when opened
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py", "mimetype": "text/x-python", "name": "python",
    "nbconvert_exporter": "python", "pygments_lexer": "ipython3", "version": "3.11.7",
}  # fmt: skip
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def main() -> int:
    """Builds or, with --check, says what is not current."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", help="such as 00_be_the_policy; all by default")
    arguments.add_argument("--check", action="store_true", help="only say what is not current")
    arguments.add_argument("--no-run", action="store_true", help="leave outputs out")
    given = arguments.parse_args()
    stale = []
    for source in sources(given.names):
        if given.check:
            stale += stale_of(source)
        else:
            build(source, run=not given.no_run)
    for line in stale:
        print(line)
    return bool(stale)


def sources(names: list[str]) -> list[Path]:
    """The source files of some notebooks, or of all."""
    known = {path.stem: path for path in sorted(SOURCES.glob("*.py"))}
    if missing := [name for name in names if name not in known]:
        raise SystemExit(f"no source for {missing[0]}: there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())


def build(source: Path, *, run: bool) -> None:
    """Writes both notebooks of a source."""
    SOLVED.mkdir(exist_ok=True)
    write(solved(source), SOLVED / f"{source.stem}.ipynb")
    notebook, path = student(source), HERE / f"{source.stem}.ipynb"
    if path.is_file() and same_code(notebook, current := nbformat.read(path, as_version=4)):
        carry_outputs(current, notebook)
    elif run:
        print(f"running {source.stem} ...")
        execute(notebook)
    write(notebook, path)
    print(f"wrote {path.relative_to(HERE.parent)}")


def student(source: Path) -> NotebookNode:
    """The notebook as a reader gets it: solutions are folded text."""
    notebook = base(source)
    for cell in notebook.cells:
        if "solution" in tags(cell):
            cell.cell_type = "markdown"
            cell.source = (
                "<details><summary>Solution</summary>\n\n```python\n"
                f"{cell.source}\n```\n\n</details>"
            )
            cell.metadata = NotebookNode()
            for name in ("outputs", "execution_count"):
                cell.pop(name, None)
    return notebook


def solved(source: Path) -> NotebookNode:
    """The notebook with each stub replaced by its solution."""
    notebook = base(source)
    cells, stub = [], None
    for cell in notebook.cells:
        if "exercise" in tags(cell):
            stub = cell
        if "solution" in tags(cell):
            stub.source = cell.source
        else:
            cells.append(cell)
    notebook.cells = cells
    return notebook


def base(source: Path) -> NotebookNode:
    """The source as a notebook; ids follow from the position, so a rebuild gives the same bytes."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = NotebookNode(kernelspec=KERNEL, language_info=LANGUAGE)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{source.stem[:2]}-{number:03d}"
        cell.metadata = NotebookNode(tags=tags(cell)) if tags(cell) else NotebookNode()
    return notebook


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def execute(notebook: NotebookNode) -> None:
    """Runs all cells; widget views, which need a state that is not kept, leave their pictures."""
    NotebookClient(notebook, timeout=900, kernel_name="python3",
                   resources={"metadata": {"path": str(HERE)}}).execute()  # fmt: skip
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.output_type == "stream" or o.get("data")]


def same_code(a: NotebookNode, b: NotebookNode) -> bool:
    """Whether two notebooks have the same code cells, and the second was run from top to bottom."""
    code = [[c.source for c in n.cells if c.cell_type == "code"] for n in (a, b)]
    counts = [c.execution_count for c in b.cells if c.cell_type == "code"]
    return code[0] == code[1] and counts == list(range(1, len(counts) + 1))


def carry_outputs(old: NotebookNode, new: NotebookNode) -> None:
    """Gives the outputs of the same code to the newly built notebook."""
    pairs = zip(
        (c for c in old.cells if c.cell_type == "code"),
        (c for c in new.cells if c.cell_type == "code"), strict=True,
    )  # fmt: skip
    for before, after in pairs:
        after.outputs = copy.deepcopy(before.outputs)
        after.execution_count = before.execution_count


def stale_of(source: Path) -> list[str]:
    """What is not current about the notebooks of a source, one line each."""
    complaints = []
    path, wanted = SOLVED / f"{source.stem}.ipynb", nbformat.writes(solved(source))
    if not path.is_file() or path.read_text(encoding="utf-8") != wanted + "\n":
        complaints.append(f"{path.name} (solved) differs from its source: run `make notebooks`")
    path, notebook = HERE / f"{source.stem}.ipynb", student(source)
    if not path.is_file():
        return [*complaints, f"{path.name} is not there: run `make notebooks`"]
    current = nbformat.read(path, as_version=4)
    if not same_code(notebook, current):
        return [*complaints, f"{path.name} was not run on its source: run `make notebooks`"]
    carry_outputs(current, notebook)
    if path.read_text(encoding="utf-8") != nbformat.writes(notebook) + "\n":
        complaints.append(f"{path.name} differs from its source: run `make notebooks`")
    return complaints


def write(notebook: NotebookNode, path: Path) -> None:
    """Writes a valid notebook."""
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

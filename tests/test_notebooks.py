"""The built notebooks: current, tidy, and run in both forms."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
BUILT = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
SOLVED = sorted((FOLDER / "solved").glob("*.ipynb"))
IDS = [path.stem for path in BUILT]
PARAMETERS = {"SEED": "int", "PROFILE": "str", "STRICT": "bool"}
KILOBYTE = 1000


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook: nbformat.NotebookNode, tag: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def in_profile(path: Path, folder: Path, *, strict: bool = False) -> Path:
    """A copy whose defaults are the smoke profile."""
    notebook = read(path)
    (cell,) = tagged(notebook, "parameters")
    cell.source = cell.source.replace('"fast"', '"smoke"')
    if strict:
        cell.source = cell.source.replace("STRICT: bool = False", "STRICT: bool = True")
    target = folder / path.name
    nbformat.write(notebook, target)
    return target


def build(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "notebooks/build.py", *words], cwd=ROOT, capture_output=True, text=True
    )


def test_there_are_notebooks_and_each_has_both_forms():
    assert IDS and [path.stem for path in SOLVED] == IDS


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_last_cell_moves_every_panel(path):
    cells = [cell.source for cell in code_cells(read(path))]
    made = re.findall(r"^(\w+) = widgets\.explore\(", "\n".join(cells), re.MULTILINE)
    moved = re.search(r"panels=\[(.*?)\]", cells[-1], re.DOTALL)
    assert made and moved and sorted(re.findall(r"\w+", moved[1])) == sorted(made)


def test_every_notebook_is_current():
    done = build("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_figures_of_readme_are_drawn_from_the_recorded_results():
    done = subprocess.run(
        [sys.executable, "notebooks/figures.py", "--check"], cwd=ROOT, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_figure_of_other_results_is_named(tmp_path):
    """Planted: the file of one study differs by a blank."""
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("policies"))
    results = tmp_path / "data" / "results" / "reward_hacking.json"
    results.write_text(results.read_text("utf-8") + " ", "utf-8")
    done = subprocess.run(
        [sys.executable, "notebooks/figures.py", "--check"], cwd=ROOT, capture_output=True,
        text=True, env={**os.environ, "AGENTRL_LAB_DATA": str(tmp_path / "data")},
    )  # fmt: skip
    assert done.returncode == 1
    named = "notebooks/figures/reward_hacking.png was not drawn from the recorded results"
    assert named in done.stdout


def test_check_says_which_notebook_is_not_current(tmp_path):
    """Planted: one character of one cell differs."""
    for name in ("notebooks", "data"):
        (tmp_path / name).mkdir()
    for path in FOLDER.rglob("*"):
        if path.suffix in (".py", ".ipynb"):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(exist_ok=True, parents=True)
            target.write_bytes(path.read_bytes())
    victim = tmp_path / "notebooks" / BUILT[0].name
    victim.write_text(victim.read_text("utf-8").replace("Be the policy", "Be the Policy"), "utf-8")
    done = subprocess.run(
        [sys.executable, "notebooks/build.py", "--check"], cwd=tmp_path, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == f"{BUILT[0].name} differs from its source: run `make notebooks`\n"


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_parameters_have_type_help_and_literal_defaults(path):
    found = papermill.inspect_notebook(str(path))
    for name, kind in PARAMETERS.items():
        assert found[name]["inferred_type_name"] == kind
    assert all(entry["help"] for entry in found.values())
    assert len(tagged(read(path), "parameters")) == 1


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_notebook_is_stored_as_jupyterlab_stores_it_and_was_run_in_order(path):
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_outputs_are_clean_and_small(path):
    """No error, no address, no path of a machine, no widget state, no big picture."""
    assert path.stat().st_size < 1000 * KILOBYTE
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr"
            data = output.get("data", {})
            assert "application/vnd.jupyter.widget-view+json" not in data
            text = output.get("text", "") + str(data.get("text/plain", ""))
            assert not re.search(r"0x[0-9a-f]{6}|/home/|/root/|/tmp/|ipykernel_\d", text), text
            for picture in re.findall(r"base64,([A-Za-z0-9+/=]+)", data.get("text/html", "")):
                assert len(picture) * 3 / 4 < 90 * KILOBYTE


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_every_picture_has_alternative_text(path):
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            page = output.get("data", {}).get("text/html", "")
            assert page.count("<img") == len(re.findall(r'<img alt="[^"]{20,}"', page))
            assert "image/png" not in output.get("data", {})


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_cells_are_short_and_the_text_is_neither_thin_nor_long(path):
    notebook = read(path)
    lengths = sorted(len(cell.source.split("\n")) for cell in code_cells(notebook))
    words = sum(len(c.source.split()) for c in notebook.cells if c.cell_type == "markdown")
    assert len(notebook.cells) <= 45 and lengths[-1] <= 30 and lengths[len(lengths) // 2] <= 12
    assert 700 <= words <= 2000
    assert all(len(line) <= 88 for c in code_cells(notebook) for line in c.source.split("\n"))


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_nobody_is_told_that_something_is_easy(path):
    text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown").lower()
    assert not re.search(r"\b(simply|obviously|trivial|of course|just)\b", text)


@pytest.mark.parametrize("path", BUILT, ids=IDS)
def test_each_exercise_has_stub_check_and_folded_solution(path):
    """NBK-12: no solution leaks into the code that a reader gets."""
    student, solved = read(path), read(FOLDER / "solved" / path.name)
    stubs = tagged(student, "exercise")
    folded = [c for c in student.cells if c.source.startswith("<details><summary>Solution")]
    assert len(stubs) == len(folded) >= 1 and not tagged(student, "solution")
    assert all("raise NotImplementedError" in cell.source for cell in stubs)
    assert not any("NotImplementedError" in cell.source for cell in code_cells(solved))
    reports = sum(cell.source.count("checks.report(") for cell in code_cells(student))
    assert reports == len(stubs)


# Run


@pytest.mark.slow
@pytest.mark.parametrize("path", BUILT, ids=IDS)
@pytest.mark.parametrize("hash_seed", [pytest.param("0", marks=pytest.mark.full), "3"])
def test_student_notebook_passes_nbval_in_the_smoke_profile(path, hash_seed, tmp_path):
    """NBK-03, NBK-05, NBK-06: deterministic cells equal their stored outputs, the rest runs."""
    copy = in_profile(path, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax",
         "--nbval-current-env", "--nbval-cell-timeout=120", "-c", os.devnull, str(copy)],
        capture_output=True, text=True, cwd=tmp_path, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_solved_notebook_passes_strictly(path, tmp_path):
    notebook = read(in_profile(path, tmp_path, strict=True))
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    said = [o.text for c in code_cells(notebook) for o in c.outputs if o.output_type == "stream"]
    assert sum(text.startswith("✔ right") for text in said) == len(tagged(notebook, "exercise"))


@pytest.mark.slow
def test_a_wrong_solution_stops_a_strict_notebook(tmp_path):
    """Planted: the strict run can fail."""
    path = in_profile(FOLDER / "solved" / BUILT[0].name, tmp_path, strict=True)
    notebook = read(path)
    stub = tagged(notebook, "exercise")[-1]
    stub.source = "def fabricated(said, answers):\n    return said == 'closed'"
    with pytest.raises(Exception, match="ExerciseNotSolved"):
        NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


STOP = """
from agentrl_lab.workbook.live import LiveRun

kept = LiveRun._note


def note(run, trainer, row, should_stop):
    if len(run.rows) == {rows}:
        raise KeyboardInterrupt
    kept(run, trainer, row, should_stop)


LiveRun._note = note
"""
LIVE = [path for path in SOLVED if "run.watch()" in path.read_text("utf-8")]


@pytest.mark.full
@pytest.mark.parametrize("path", LIVE, ids=lambda path: path.stem)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_notebook_goes_on_with_what_a_stopped_run_left(path, rows, tmp_path):
    """Stopped before the untrained policy was looked at, and before the first update."""
    notebook = read(in_profile(path, tmp_path))
    (cell,) = (c for c in code_cells(notebook) if "run.watch()" in c.source)
    undo = "LiveRun._note = kept"  # other runs of the notebook are not stopped
    cell.source = f"{STOP.format(rows=rows)}\n{cell.source}\n{undo}"
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()

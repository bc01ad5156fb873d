"""The runner: parameters, refusals, verdicts; and, marked slow, kernels that fail in each way."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import nbformat
import psutil
import pytest
from nbformat import v4

from agentrl_lab.config import DATA_VARIABLE
from agentrl_lab.workbook import runner
from agentrl_lab.workbook.execution import EXECUTED, Ended, Limits
from agentrl_lab.workbook.parameters import Declared, convert, read_given
from agentrl_lab.workbook.recording import RESULT_VARIABLE, read_records, write_json
from agentrl_lab.workbook.sources import find_notebooks, read_source
from agentrl_lab.workbook.verdict import WIDGET_STATE, WIDGET_VIEW, failures, read_executed
from tests import notebooks

DECLARED = {
    "FLAG": Declared("bool"), "COUNT": Declared("int"), "LEARNING_RATE": Declared("float"),
    "NAME": Declared("str"), "CLIP_RANGE": Declared("list[float]"), "SEEDS": Declared("list[int]"),
    "NOTE": Declared("str", optional=True),
}  # fmt: skip

# Parameters


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("FLAG=false", False), ("FLAG=True", True), ("COUNT=3", 3), ("COUNT=010", 10),
        ("LEARNING_RATE=1e-3", 0.001), ("LEARNING_RATE=2", 2.0), ("LEARNING_RATE=-.inf", -math.inf),
        ("NAME=no", "no"), ("NAME=a=b", "a=b"), ("NAME=1e-3", "1e-3"), ("NAME=None", "None"),
        ("CLIP_RANGE=[0.1, 1e-3]", [0.1, 0.001]), ("SEEDS=[1, 2]", [1, 2]), ("SEEDS=[]", []),
        ("NOTE=None", None), ("NOTE=null", None), ("NOTE=text", "text"),
    ],
)  # fmt: skip
def test_value_is_converted_by_its_declared_type(written, value):
    (converted,) = convert(DECLARED, read_given([written], [])).values()
    assert converted == value and type(converted) is type(value)


def test_python_values_keep_their_meaning():
    given = {
        "FLAG": False, "COUNT": 7, "LEARNING_RATE": math.inf, "CLIP_RANGE": (0.1, 0.15),
        "SEEDS": [1, 2], "NOTE": None,
    }  # fmt: skip
    assert convert(DECLARED, given) == given | {"CLIP_RANGE": [0.1, 0.15]}


def test_file_is_read_without_the_traps_of_yaml(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("LEARNING_RATE: 1e-3\nFLAG: false\nCOUNT: 010\nNAME: no\nNOTE: null\n")
    found = convert(DECLARED, read_given(["COUNT=5"], [path]))
    expected = {"LEARNING_RATE": 0.001, "FLAG": False, "COUNT": 5, "NAME": "no", "NOTE": None}
    assert found == expected  # and -p wins over the file


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("FLAG=0", "FLAG must be true or false (bool), got '0'"),
        ("COUNT=1.5", "COUNT must be a whole number (int), got '1.5'"),
        ("COUNT=true", "COUNT must be a whole number (int), got 'true'"),
        ("LEARNING_RATE=fast", "LEARNING_RATE must be a number (float), got 'fast'"),
        ("LEARNING_RATE=nan", "LEARNING_RATE must be a number (float), got 'nan'"),
        ("CLIP_RANGE=(0.1, 0.15)", "CLIP_RANGE must be a list such as [0.1, 0.15]"),
        ("SEEDS=[1, 2.5]", "SEEDS must be a list such as [1, 2] (list[int]), got '[1, 2.5]'"),
        ("COUNT=None", "COUNT must be a whole number (int), got 'None'"),
        ("LEARNIG_RATE=1", "no parameter is called 'LEARNIG_RATE': did you mean 'LEARNING_RATE'?"),
        ("COUNT", "-p takes name=value, got 'COUNT'"),
        ("SEEDS=[1", "SEEDS must be a list such as [1, 2] (list[int]), got '[1'"),
    ],
)
def test_value_that_does_not_fit_is_refused_by_name(written, words):
    with pytest.raises(ValueError) as error:
        convert(DECLARED, read_given([written], []))
    assert words in str(error.value)


def test_what_papermill_itself_would_make_of_them_is_seen_as_wrong():
    from papermill.cli import _resolve_type
    from papermill.iorw import NoDatesSafeLoader
    from yaml import load

    assert _resolve_type("false") == "false"  # a true string: the reason for our own conversion
    assert load("1e-3", NoDatesSafeLoader) == "1e-3" and load("010", NoDatesSafeLoader) == 8


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "a: [", "just text"])
def test_file_without_a_mapping_is_one_clear_line(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"params\.yaml (must hold lines|is not YAML)"):
        read_given([], [path])


# Refused before anything runs


def refused(path):
    with pytest.raises(ValueError) as error:
        read_source(path)
    (line,) = str(error.value).splitlines()
    return line


def test_source_knows_its_parameters_and_cells(tmp_path):
    path = notebooks.write(tmp_path, "00_a", "\nx = 1", parameters=notebooks.PARAMETERS + TYPED)
    source = read_source(path)
    assert (source.name, source.parameters_cell, source.last_cell) == ("00_a", 2, 3)
    assert source.line(3) == "x = 1"
    assert source.parameters["LEARNING_RATE"] == Declared("float")
    assert source.parameters["NOTE"] == Declared("str", optional=True)
    assert source.parameters.keys() == {
        "SEED", "PROFILE", "STRICT", "LEARNING_RATE", "FLAG", "SEEDS", "NOTE", "TOP",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("KL_LIMIT: float = LEARNING_RATE * 2", "line 4 is no `NAME: type = literal`"),
        ("LIMIT: float = float('inf')", "line 4 is no `NAME: type = literal`"),
        ("print(SEED)", "line 4 is no `NAME: type = literal`"),
        ("import os", "line 4 is no `NAME: type = literal`"),
        ("A: int = ", "line 4 is not Python"),
        ("A = B = 1", "A has type None"),
        ("CLIP: tuple[float, float] = (0.1, 0.15)", "CLIP has type tuple[float, float], expected"),
        ("COUNT = 3", "COUNT has type None, expected one of bool, int"),
        ("NOTE: str | None = None", "NOTE has type None, expected"),
    ],
)
def test_parameters_cell_with_more_than_typed_literals_is_refused(tmp_path, line, words):
    path = notebooks.write(tmp_path, "00_a", parameters=f"{notebooks.PARAMETERS}\n{line}")
    assert refused(path).startswith("00_a: cell 2: ") and words in refused(path)


def test_parameters_cell_without_profile_or_strict_is_refused(tmp_path):
    path = notebooks.write(tmp_path, "00_a", parameters="SEED: int = 0\nSTRICT: bool = False")
    assert "must declare PROFILE: str" in refused(path)
    path = notebooks.write(tmp_path, "00_a", parameters='STRICT: int = 0\nPROFILE: str = "fast"')
    assert "must declare STRICT: bool" in refused(path)


def test_none_or_two_parameters_cells_are_refused(tmp_path):
    path = notebooks.write(tmp_path, "00_a", "1", parameters=None)
    assert "expected one code cell tagged 'parameters', got cells []" in refused(path)
    node = notebooks.notebook("1")
    node.cells[2].metadata["tags"] = ["parameters"]
    nbformat.write(node, path)
    assert "got cells [2, 3]" in refused(path)


@pytest.mark.parametrize("cell", ["!false", "x = !ls", "if True:\n    !!ls", "%sx ls"])
def test_shell_line_is_refused_with_its_cell(tmp_path, cell):
    path = notebooks.write(tmp_path, "00_a", "pass", cell)
    assert refused(path).startswith("00_a: cell 4: it has a shell line")


def test_exclamation_marks_that_are_no_shell_lines_pass(tmp_path):
    cell = 'text = """\n!not a shell line\n"""\nassert 1 != 2\n%time x = 1'
    read_source(notebooks.write(tmp_path, "00_a", cell))


def test_unknown_kernel_is_refused(tmp_path):
    path = notebooks.write(tmp_path, "00_a", kernel="agentrl")
    assert "its kernel is 'agentrl' (python), expected 'python3'" in refused(path)


def test_output_of_a_run_is_refused_as_a_source(tmp_path):
    node = notebooks.notebook("1")
    node.cells[2].metadata["tags"] = ["injected-parameters"]
    nbformat.write(node, tmp_path / "00_a.ipynb")
    assert "is the output of a run" in refused(tmp_path / "00_a.ipynb")


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"cells": 3}', "{}"])
def test_file_that_is_no_notebook_is_one_clear_line(tmp_path, text):
    (tmp_path / "00_a.ipynb").write_text(text)
    assert "00_a.ipynb is not a notebook" in refused(tmp_path / "00_a.ipynb")


def test_names_are_numbers_stems_or_paths_and_unknown_ones_get_the_nearest(tmp_path):
    first = notebooks.write(tmp_path, "00_be_the_policy")
    second = notebooks.write(tmp_path, "05_full_training")
    notebooks.write(tmp_path, "draft")
    assert find_notebooks([], tmp_path) == [first, second]
    for name in ("05", "05_full_training", str(second)):
        assert find_notebooks([name], tmp_path) == [second]
    assert find_notebooks(["00", "00_be_the_policy"], tmp_path) == [first]
    with pytest.raises(ValueError, match="did you mean '05_full_training'"):
        find_notebooks(["05_ful_training"], tmp_path)
    with pytest.raises(ValueError, match=r"no notebook .*06\.ipynb"):
        find_notebooks(["06.ipynb"], tmp_path)
    solved = notebooks.write(tmp_path / "solved", "00_be_the_policy")
    with pytest.raises(ValueError, match="two notebooks are called 00_be_the_policy"):
        find_notebooks(["00", str(solved)], tmp_path)
    with pytest.raises(FileNotFoundError, match="make notebooks"):
        find_notebooks([], tmp_path / "none")


# Verdicts


LIMITS = Limits(60, 120)


def run_of(folder, executed, *, claims=None, **ended):
    """The failures of a run whose output is `executed`; ended well, but for what is given."""
    source = read_source(notebooks.write(folder, "00_a", "show()", "train()", notebooks.FINISH))
    result = folder / "result.json"
    if claims is not None:
        write_json(result, {"claims": claims, "finished": True})
    end = replace(Ended(code=0, seconds=1.0, cell=5, overdue=False, log=""), **ended)
    return [str(failure) for failure in failures(source, executed, end, result, LIMITS)]


def completed(*outputs, cell=4):
    """An output notebook that papermill calls completed, with its injected cell."""
    node = notebooks.notebook("show()", "train()", notebooks.FINISH)
    node.cells[cell - 1].outputs = list(outputs)
    node.cells.insert(2, v4.new_code_cell("x", metadata={"tags": ["injected-parameters"]}))
    node.cells.insert(0, v4.new_markdown_cell("!", metadata={"tags": ["papermill-error-cell-tag"]}))
    for each in node.cells:
        each.metadata["papermill"] = {"status": "completed", "exception": None}
    return node


def error(name="ZeroDivisionError", value="division by zero"):
    return v4.new_output("error", ename=name, evalue=value, traceback=[])


def hidden(node, cell=4):
    """An error inside an Output widget inside a box that a cell shows."""
    output = dict(error("ValueError", "\x1b[31mplanted\x1b[0m"))
    state = {
        "box1": {"model_name": "VBoxModel", "state": {"children": ["IPY_MODEL_out1"]}},
        "out1": {"model_name": "OutputModel", "state": {"outputs": [output]}},
    }
    node.metadata["widgets"] = {WIDGET_STATE: {"state": state}}
    view = {WIDGET_VIEW: {"model_id": "box1"}, "text/plain": "VBox()"}
    node.cells[cell + 1].outputs = [v4.new_output("display_data", view)]  # two cells were added
    return node


def broken_runs():
    """Words of the cause -> a run that went wrong, though papermill stored `completed`."""
    held = {"claims": {"it ran": True}}
    return {
        "ZeroDivisionError: division by zero": (completed(error()), {"code": 1, **held}),
        "SystemExit: 0": (completed(error("SystemExit", "0")), held),
        "the cell was not done after 60 s": (
            completed(error("KeyboardInterrupt", "")),
            {"code": 1, "cell": 4, "log": "nbclient.exceptions.CellTimeoutError: x"},
        ),
        "the notebook was not done after 120 s": (completed(), {"code": 1, "overdue": True}),
        "the kernel died": (completed(), {"code": 138, "cell": 4}),
        "hidden in a widget: ValueError: planted": (hidden(completed()), held),
        "it wrote to stderr: ZeroDivisionError: division by zero": (
            completed(v4.new_output("stream", name="stderr", text=(
                "Exception in thread Thread-1:\nZeroDivisionError: division by zero\n"))),
            held,
        ),
        "no result file": (completed(), {}),
        "claim does not hold: it ran": (completed(), {"claims": {"it ran": False}}),
        "the result file holds no claims": (completed(), {"claims": {}}),
        "papermill ended with exit code 1: UsageError: no magic": (
            completed(v4.new_output("stream", name="stderr", text="UsageError: no magic\n")),
            {"code": 1, "cell": 4},
        ),
        "papermill ended with exit code 1: NoSuchKernel: python9": (
            None, {"code": 1, "cell": 1, "log": "Traceback\nNoSuchKernel: python9\n"},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("words", broken_runs())
def test_broken_run_gives_one_line_with_notebook_cell_and_cause(tmp_path, words):
    executed, how = broken_runs()[words]
    (line,) = run_of(tmp_path, executed, **how)
    last = ("no result", "claim", "the result", "the notebook")  # the rest is told of cell 4
    cell = 1 if executed is None else 5 if words.startswith(last) else 4
    first = {1: "# A title", 4: "train()", 5: notebooks.FINISH.splitlines()[0]}[cell]
    assert line.startswith(f"00_a: cell {cell} ({first}): ") and words in line
    assert "\x1b" not in line


def test_error_of_a_widget_that_no_cell_shows_is_told_of_the_last_cell(tmp_path):
    node = hidden(completed())
    for cell in node.cells:
        cell.pop("outputs", None)
    (line,) = run_of(tmp_path, node, claims={"it ran": True})
    assert "cell 5" in line and "hidden in a widget that no cell shows: ValueError" in line


def test_well_run_gives_none(tmp_path):
    assert run_of(tmp_path, completed(), claims={"it ran": True, "and this": True}) == []


def trusts_stored_status(executed, code):
    return all(cell.metadata["papermill"]["status"] == "completed" for cell in executed.cells)


def trusts_exit_code(executed, code):
    return code == 0


def trusts_error_outputs(executed, code):
    outputs = [out for cell in executed.cells for out in cell.get("outputs", [])]
    return not any(out.output_type == "error" for out in outputs)


@pytest.mark.parametrize("judge", [trusts_stored_status, trusts_exit_code, trusts_error_outputs])
def test_a_verdict_from_one_sign_alone_is_fooled_by_some_run_above(judge):
    runs = [(executed, how.get("code", 0)) for executed, how in broken_runs().values() if executed]
    assert any(judge(executed, code) for executed, code in runs)


def test_stale_result_file_does_not_speak_for_a_new_run(tmp_path, monkeypatch):
    from agentrl_lab.workbook.execution import RESULT, _prepare

    folder = tmp_path / "out" / "00_a"
    folder.mkdir(parents=True)
    write_json(folder / RESULT, {"claims": {"it ran": True}, "finished": True})
    (folder / "mine.txt").write_text("kept")
    _prepare(folder, tmp_path / "00_a.ipynb")
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_source_inside_its_own_output_folder_is_refused_and_stays(tmp_path):
    from agentrl_lab.workbook.execution import _prepare

    source = notebooks.write(tmp_path / "executed", "executed", "1")
    with pytest.raises(ValueError, match="would be overwritten by its own run"):
        _prepare(source.parent, source)
    assert source.exists()


def test_output_cut_in_writing_counts_as_none(tmp_path):
    (tmp_path / EXECUTED).write_text('{"cells": [')
    assert read_executed(tmp_path / EXECUTED) is None
    assert read_executed(tmp_path / "none.ipynb") is None


def test_second_run_in_a_locked_folder_is_refused_in_one_line(tmp_path):
    with (
        runner.locked(tmp_path / "out"),
        pytest.raises(ValueError, match="another run is working in"),
        runner.locked(tmp_path / "out"),
    ):
        raise AssertionError("both have it")
    with runner.locked(tmp_path / "out"):
        pass


def test_profile_is_checked_and_only_given_as_such():
    with pytest.raises(ValueError, match="did you mean 'smoke'"):
        runner.Request(profile="smok")
    with pytest.raises(ValueError, match="give it as --profile"):
        runner.Request(given={"PROFILE": "full"})
    assert runner.Request(profile="smoke").limits == Limits(120, 300)
    assert runner.Request(profile="full", cell_timeout=5).limits == Limits(5, 7200)


# Real kernels


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "a place"  # with a space
    monkeypatch.setenv(DATA_VARIABLE, str(notebooks.workplace(folder)))
    return folder


def start(place, *words):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agentrl_lab.cli", "workbook", *words], cwd=place, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def play(place, *words):
    """Exit code, stdout, lines of stderr."""
    process = start(place, *words)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    return process.returncode, out, err.strip().splitlines()


def left_behind(place):
    """Processes of a run under this place: papermill, kernels, their children."""
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(RESULT_VARIABLE, "")
            if mark.startswith(str(place)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


TYPED = """
LEARNING_RATE: float = 0.1  # step size
FLAG: bool = True  # any
SEEDS: list[int] = [1]  # any
NOTE: str = None  # any
TOP: float = 1.0  # any"""
USES = """\
kl_limit = LEARNING_RATE * 2
from agentrl_lab.workbook.recording import record
assert FLAG is False and SEEDS == [1, 2] and TOP == float("inf") and NOTE is None
record(kl_limit=kl_limit, profile=PROFILE)"""


@pytest.mark.slow
def test_good_run_twice_on_one_folder(place):
    source = notebooks.write(
        place / "notebooks", "00_good", USES, notebooks.FINISH,
        parameters=notebooks.PARAMETERS + TYPED,
    )  # fmt: skip
    (place / "agentrl_lab").mkdir()  # a folder of that name must not be taken for the package
    (place / "agentrl_lab" / "__init__.py").write_text("raise ImportError('not the package')")
    node = nbformat.read(source, as_version=4)
    node.cells[2].outputs = [error("KeyboardInterrupt", "of last year")]  # must not matter
    nbformat.write(node, source)
    before = source.read_bytes()
    (place / "params.yaml").write_text("LEARNING_RATE: 1e-3\nFLAG: true\nNOTE: null\nTOP: .inf\n")
    words = ["00", "--out", "out", "-f", "params.yaml", "-p", "FLAG=false", "-p", "SEEDS=[1, 2]"]
    code, out, err = play(place, *words)
    assert (code, err) == (0, [])
    assert "00_good  cell 3/4  kl_limit = LEARNING_RATE * 2" in out
    assert out.splitlines()[-1] == "report: out/report.html"
    executed = place / "out" / "00_good" / EXECUTED
    first = read_records(nbformat.read(executed, as_version=4))
    assert first == {"kl_limit": 0.002, "profile": "fast"}
    code, out, err = play(place, *words, "-p", "LEARNING_RATE=0.25", "--profile", "smoke")
    assert (code, err) == (0, [])
    node = nbformat.read(executed, as_version=4)
    assert read_records(node) == {"kl_limit": 0.5, "profile": "smoke"}
    injected = [c for c in node.cells if "injected-parameters" in c.metadata.get("tags", [])]
    assert len(injected) == 1
    assert source.read_bytes() == before
    history = (place / "runs" / "workbook" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["notebooks"]["00_good"]["ok"] for line in history] == [True, True]
    code, out, err = play(place, str(executed), "--out", "out")
    assert code == 2 and len(err) == 1 and "is the output of a run" in err[0]
    assert left_behind(place) == []


SWALLOWED = """\
import ipywidgets
out = ipywidgets.Output()
with out:
    raise ValueError("planted")
ipywidgets.VBox([out])"""
SPAWN = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])"
FAILING = {
    "01_magic": (["%not_a_magic"], "cell 3 (%not_a_magic): papermill ended with exit code 1: "
                 "UsageError: Line magic function `%not_a_magic` not found."),
    "02_division": (["x = 1", "1/0"], "cell 4 (1/0): ZeroDivisionError: division by zero"),
    "03_exit": (["import sys; sys.exit(1)"], "cell 3 (import sys; sys.exit(1)): SystemExit: 1"),
    "04_widget": ([SWALLOWED, notebooks.FINISH],
                  "cell 3 (import ipywidgets): hidden in a widget: ValueError: planted"),
    "05_killed": ([f"{SPAWN}\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)"],
                  "cell 3 (import subprocess): the kernel died"),
    "06_sleeps": ([f"{SPAWN}\nimport time; time.sleep(600)"],
                  "cell 3 (import subprocess): the cell was not done after 15 s"),
    "07_silent": (["pass"], "cell 3 (pass): no result file"),
    "08_false": ([notebooks.FINISH.replace("True", "False")], "claim does not hold: it ran"),
}  # fmt: skip


@pytest.mark.slow
def test_each_failure_is_one_line_with_notebook_cell_and_cause(place):
    for name, (cells, _) in FAILING.items():
        notebooks.write(place / "notebooks", name, *cells)
    code, _, err = play(place, "--out", "out", "--cell-timeout", "15")
    assert code == 1 and len(err) == len(FAILING), err
    for line, (name, (_, words)) in zip(err, FAILING.items(), strict=True):
        assert line.startswith(f"agentrl-lab: {name}: cell ") and words in line
    assert left_behind(place) == []
    notebooks.write(place / "notebooks", "02_division", "x = 1", "1/1", notebooks.FINISH)
    assert play(place, "02", "--out", "out")[0] == 0
    node = read_executed(place / "out" / "02_division" / EXECUTED)
    assert not any("papermill-error-cell-tag" in c.metadata.get("tags", []) for c in node.cells)


@pytest.mark.slow
def test_notebook_limit_ends_a_run_of_many_short_cells(place):
    cells = [f"{SPAWN}\nimport time", *(["time.sleep(5)"] * 20), notebooks.FINISH]
    notebooks.write(place / "notebooks", "00_long", *cells)
    code, _, (line,) = play(place, "--out", "out", "--notebook-timeout", "12")
    assert code == 1 and "(time.sleep(5)): the notebook was not done after 12 s" in line
    assert left_behind(place) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_interrupted_runner_leaves_no_process(place, end, code):
    notebooks.write(place / "notebooks", "00_sleeps", f"{SPAWN}\nimport time; time.sleep(600)")
    process = start(place, "00", "--out", "out")
    while "cell 3/3" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    deadline = time.monotonic() + 60
    while not any("sleep" in other.name() for other in left_behind(place)):
        assert time.monotonic() < deadline, "the cell did not begin"
        time.sleep(0.2)
    second = play(place, "00", "--out", "out")
    assert second[0] == 2 and len(second[2]) == 1
    assert "another run is working in out: wait for it or choose another --out" in second[2][0]
    os.kill(process.pid, end)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code and "Traceback" not in err
    deadline = time.monotonic() + (20 if end == signal.SIGKILL else 0)
    while left_behind(place) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_behind(place) == []


@pytest.mark.slow
def test_wrong_words_are_one_line_before_anything_runs(place):
    notebooks.write(place / "notebooks", "00_good", notebooks.FINISH)
    for words, advice in (
        (["00", "-p", "SEDE=1"], "00_good: cell 2: no parameter is called 'SEDE': did you mean"),
        (["00", "-p", "SEED=1.5"], "00_good: cell 2: SEED must be a whole number"),
        (["00_god"], "no notebook is called '00_god': did you mean '00_good'?"),
        (["accept", "00", "--reason", "x", "--seeds", "1-9"], "--seeds takes first:end"),
        (["accept", "00", "--reason", "x", "--seeds", "1:9"], "10 or more different seeds"),
        (["accept", "00"], "--reason"),
    ):
        code, out, err = play(place, *words)
        assert (code, out, len(err)) == (2, "", 1) and advice in err[0], err
    assert not (place / "runs").exists()

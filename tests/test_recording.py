"""Recorded values and the result file."""

import json
import math

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import v4

from agentrl_lab.workbook.recording import (
    RECORD_MIME,
    RESULT_VARIABLE,
    finish,
    read_records,
    record,
)
from tests.notebooks import recorded


@pytest.fixture(scope="module")
def shell():
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def shown(**values):
    with capture_output() as captured:
        record(**values)
    (output,) = captured.outputs
    return output.data


def test_record_shows_rounded_values_for_people_and_for_the_runner(shell):
    data = shown(success=0.123456, updates=123456, name="tiny", held=True)
    values = {"success": 0.1235, "updates": 123456, "name": "tiny", "held": True}
    assert data[RECORD_MIME] == values
    words = "recorded: success 0.1235, updates 123456, name tiny, held True"
    assert data["text/plain"] == words


def test_record_of_numpy_scalars_gives_plain_numbers(shell):
    data = shown(a=np.float32(0.5), b=np.int64(7))
    assert [type(value) for value in data[RECORD_MIME].values()] == [float, int]


@pytest.mark.parametrize("value", [[1], (1, 2), None, {"a": 1}, np.zeros(2), np.bool_(True), 1j])
def test_record_refuses_what_is_not_plain_and_names_it(value):
    with pytest.raises(TypeError, match=r"record\(score=\.\.\.\) takes a number, str or bool"):
        record(score=value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_record_refuses_numbers_that_are_not_finite(value):
    with pytest.raises(ValueError, match=r"record\(score=\.\.\.\) needs a finite number"):
        record(score=value)


def test_record_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        record()


def executed(*outputs):
    cells = [v4.new_markdown_cell("text"), v4.new_code_cell(outputs=list(outputs))]
    return v4.new_notebook(cells=cells)


def test_read_records_collects_all_and_passes_over_other_outputs():
    text = v4.new_output("stream", name="stdout", text="hello")
    found = read_records(executed(text, recorded(a=1), recorded(b=0.5), recorded(a=1)))
    assert found == {"a": 1, "b": 0.5}


def test_read_records_refuses_a_name_with_two_values():
    with pytest.raises(ValueError, match="a was recorded twice, as 1 and as 2"):
        read_records(executed(recorded(a=1), recorded(a=2)))


def test_finish_writes_the_claims_whole_and_only_when_asked(tmp_path, monkeypatch):
    monkeypatch.delenv(RESULT_VARIABLE, raising=False)
    finish({"it holds": True})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(RESULT_VARIABLE, str(tmp_path / "result.json"))
    finish({"it holds": np.bool_(True), "that too": False})
    content = json.loads((tmp_path / "result.json").read_text())
    assert content == {"claims": {"it holds": True, "that too": False}, "finished": True}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]

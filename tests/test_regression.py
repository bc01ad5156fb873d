"""Bands, history and fingerprint; the runner's judgement of values, without a kernel."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from agentrl_lab.config import DATA_VARIABLE
from agentrl_lab.workbook import regression, runner
from agentrl_lab.workbook.regression import Value, band_of, compare
from agentrl_lab.workbook.workbook_report import figures, spark
from tests import notebooks

SEEDS = range(100, 110)
HALVES = [0.4, 0.6] * 5


def test_band_by_hand():
    # mean 0.5; sd = sqrt(10 * 0.1**2 / 9) = 0.105409; t(0.995, 9) = 3.249836
    # half = 3.249836 * 0.105409 * sqrt(1.1) = 0.359284
    band = band_of(HALVES, SEEDS, "first")
    assert band.low == pytest.approx(0.140716, abs=2e-6)
    assert band.high == pytest.approx(0.859284, abs=2e-6)
    assert (band.values, band.seeds, band.reason) == (HALVES, list(SEEDS), "first")
    assert not band.logarithmic


def test_band_of_skewed_positive_values_by_hand():
    # Half of the runs at 0.01, half at 0.04: on the plain scale 0.025 - 3.41 * 0.0158 is below 0.
    # ln: mean -3.91202, sd 0.693147 * sqrt(10 / 9) = 0.730641, half 3.408466 * 0.730641 = 2.490366
    band = band_of([0.01, 0.04] * 5, SEEDS, "first")
    assert band.logarithmic
    assert band.low == pytest.approx(0.02 / math.exp(2.490366), rel=1e-5)
    assert band.high == pytest.approx(0.02 * math.exp(2.490366), rel=1e-5)
    assert band.size(0.02) == pytest.approx(0) and band.size(band.high) == pytest.approx(1)
    assert band.size(0.24) < 1 < band.size(0.25) and band.size(1 / 600) < 1 < band.size(1 / 607)
    assert band.size(0.0) == band.size(-1.0) == math.inf
    # One run at 0 has no logarithm, and runs that reach below 0 have no reason for one.
    assert not band_of([0.0] + [0.04] * 9, SEEDS, "first").logarithmic
    assert not band_of([-0.01, 0.04] * 5, SEEDS, "first").logarithmic


def test_band_is_of_one_new_run_not_of_the_mean():
    def interval_of_the_mean(values):  # planted: narrower by sqrt(11), red on every other night
        return 3.249836 * 0.105409 * math.sqrt(1 / len(values))

    band = band_of(HALVES, SEEDS, "first")
    assert band.size(0.6) < 1
    assert abs(0.6 - 0.5) < interval_of_the_mean(HALVES) < (band.high - band.low) / 6
    assert band.size(0.7) < 1 and abs(0.7 - 0.5) > interval_of_the_mean(HALVES)


def test_band_of_equal_runs_keeps_the_resolution():
    band = band_of([1.0] * 10, SEEDS, "first")
    assert (band.low, band.high) == (1 - 1 / 64, 1 + 1 / 64)
    assert band.size(1.0) == 0 and band.size(1 - 1 / 128) == 0.5 and band.size(0.97) > 1


@pytest.mark.parametrize(
    ("values", "seeds", "reason", "words"),
    [
        ([1.0] * 9, range(9), "why", "10 or more different seeds"),
        ([1.0] * 10, [0] * 10, "why", "10 or more different seeds"),
        ([1.0] * 10, range(11), "why", "10 or more different seeds"),
        ([1.0] * 10, range(10), " ", "--reason must say why"),
    ],
)
def test_band_refuses_too_little(values, seeds, reason, words):
    with pytest.raises(ValueError, match=words):
        band_of(values, seeds, reason)


def test_compare_marks_missing_and_unbanded_values():
    band = band_of(HALVES, SEEDS, "first")
    bands = {"a": band, "c": band, "word": band}
    found = compare("00", {"a": 0.9, "b": 1, "word": "x"}, bands, whole=True)
    words = {value.name: str(value) for value in found}
    assert [value.name for value in found if value.out] == ["a", "c"]
    assert words["a"] == "00: a 0.9 is above its band 0.1407 to 0.8593, 1.1 half-bands off"
    assert words["b"] == "00: b 1: no band yet"
    assert words["c"] == "00: c was not recorded, its band 0.1407 to 0.8593"
    assert found[-1].size == math.inf
    half_done = compare("00", {"a": 0.5}, {"a": band, "c": band}, whole=False)
    assert [value.name for value in half_done] == ["a"]  # the crash is the news, not what it cut


def run(when, value, ok=True, **machine):
    return {
        "when": when, "ok": ok, "values": {"a": value}, "parameters": {}, "fingerprint": machine,
    }  # fmt: skip


def test_out_since_is_the_begin_of_the_last_streak():
    value = Value("00", "a", 2.0, band_of([1.0] * 10, SEEDS, "first"))
    runs = [run("1", 2.0), run("2", 1.0), run("3", 2.0), run("4", 2.0)]
    assert regression.out_since(runs, value) == "3"  # not "1": it was well in between
    assert regression.out_since(runs[:2], value) == ""
    assert regression.out_since([run("1", 2.0)] * 30, value) == "1"


def test_changed_since_green_compares_with_the_last_green_run():
    runs = [
        run("1", 1, torch="2.12", cores="4"),
        run("2", 1, torch="2.13", cores="4"),
        run("3", 2, ok=False, torch="2.14", cores="4"),
        run("4", 2, ok=False, torch="2.14", cores="8"),
    ]
    words = "since the last green run (2): torch 2.13 -> 2.14, cores 4 -> 8"
    assert regression.changed_since_green(runs) == words
    assert regression.changed_since_green(runs[:1]) == "no green run to compare with"
    same = [runs[0], runs[0]]
    assert regression.changed_since_green(same).endswith("parameters are the same")
    faster = {**runs[0], "parameters": {"LEARNING_RATE": 0.001}}
    assert "LEARNING_RATE default -> 0.001" in regression.changed_since_green([runs[0], faster])


def test_history_that_cannot_be_written_is_refused_beforehand(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "h.jsonl"
    with pytest.raises(ValueError, match=re.escape(f"--history {path} cannot be written: ")):
        regression.check_writable(path)
    regression.check_writable(tmp_path / "new" / "h.jsonl")
    regression.append_history(tmp_path / "new" / "h.jsonl", {"n": 1})
    assert regression.read_history(tmp_path / "new" / "h.jsonl") == [{"n": 1}]
    assert (tmp_path / "new" / "h.jsonl").read_text().count("\n") == 1


def test_history_survives_a_line_that_a_kill_cut(tmp_path):
    path = tmp_path / "runs" / "history.jsonl"
    regression.append_history(path, {"n": 1})
    with open(path, "a") as file:
        file.write('{"n": 2, "val')
    regression.append_history(path, {"n": 3})
    assert regression.read_history(path) == [{"n": 1}, {"n": 3}]
    assert regression.read_history(tmp_path / "none.jsonl") == []


def test_fingerprint_has_what_values_may_depend_on(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = regression.fingerprint()
    names = {"processor", "cores", "OMP_NUM_THREADS", "python", "torch", "numpy", "transformers"}
    assert found.keys() == names | {"papermill", "ipykernel"}
    assert found["OMP_NUM_THREADS"] == "3" and all(found.values())


def test_spark_draws_the_last_twenty_runs_and_the_band_behind():
    value = Value("00", "a", 1.0, band_of([1.0] * 10, SEEDS, "first"))
    drawn = spark([run(str(n), 1 + n / 10) for n in range(30)], value)
    ys = [y for _, y in drawn["points"]]
    assert len(ys) == 20 and ys == sorted(ys, reverse=True)  # rising values, y counts downwards
    assert drawn["words"].endswith("3.8, 3.9")
    assert drawn["band"][0] <= drawn["band"][1]
    assert spark([run("1", "text")], Value("00", "a", "text", None)) is None
    assert spark([run("1", 1)], Value("00", "a", 1, None))["band"] == []


# The runner's judgement


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, str(notebooks.workplace(tmp_path)))
    notebooks.write(tmp_path / "notebooks", "00_first", "pass", notebooks.FINISH)
    return tmp_path


def request(place, **more):
    return runner.Request(out=place / "out", history=place / "history.jsonl", **more)


def play(place, monkeypatch, values, claims=None, **more):
    """A run with a fake kernel that records the given values; red lines."""
    monkeypatch.setattr(runner, "execute", notebooks.FakeExecution(lambda _: values, claims))
    return runner.run_workbook(["00"], request(place, **more), lambda line: None)


def accept(place, monkeypatch, values, seeds=SEEDS, reason="first", claims=None):
    fake = notebooks.FakeExecution(values, claims)
    monkeypatch.setattr(runner, "execute", fake)
    red = runner.accept("00", reason, seeds, request(place), lambda line: None)
    return red, fake


def spread(parameters):
    return {"a": HALVES[parameters["SEED"] % 10], "b": 5, "ok": True, "word": "x"}


def test_accept_writes_bands_of_these_seeds_with_their_reason(place, monkeypatch):
    red, fake = accept(place, monkeypatch, spread)
    assert red == []
    assert [values["SEED"] for _, values in fake.ran] == list(SEEDS)
    written = json.loads((place / "data" / "baselines.json").read_text())
    bands = written["00_first"]["fast"]
    assert bands.keys() == {"a", "b", "ok"}  # text has no band
    assert bands["a"]["low"] == pytest.approx(0.140716, abs=2e-6)
    assert (bands["b"]["low"], bands["b"]["reason"]) == (5 - 1 / 64, "first")
    assert bands["a"]["seeds"] == list(SEEDS)


def test_accept_keeps_other_profiles_and_writes_nothing_after_a_failure(place, monkeypatch):
    path = place / "data" / "baselines.json"
    path.write_text(json.dumps({"00_first": {"smoke": {}}, "09_other": {"fast": {}}}))
    before = path.read_text()
    red, fake = accept(place, monkeypatch, spread, claims={"success rises": False})
    assert len(fake.ran) == 1 and path.read_text() == before
    assert red == [
        "seed 100: 00_first: cell 4 (from agentrl_lab.workbook.recording import finish): "
        "claim does not hold: success rises"
    ]
    accept(place, monkeypatch, spread)
    content = json.loads(path.read_text())
    assert content["00_first"].keys() == {"smoke", "fast"} and "09_other" in content


def test_accept_refuses_before_it_runs_anything(place, monkeypatch):
    for seeds, reason in ((range(9), "why"), (SEEDS, "")):
        with pytest.raises(ValueError, match=r"10 or more different seeds|--reason must say"):
            accept(place, monkeypatch, spread, seeds, reason)
    assert not (place / "out").exists()


def test_accept_refuses_values_that_only_some_seeds_recorded(place, monkeypatch):
    red, _ = accept(place, monkeypatch, lambda p: {"a": 1} if p["SEED"] % 2 else {"b": 1})
    assert "not every seed recorded the same values" in red[0]
    assert not (place / "data" / "baselines.json").exists()


def test_run_with_no_band_is_well_and_says_so(place, monkeypatch):
    assert play(place, monkeypatch, {"a": 0.5}) == []
    assert "no band yet" in (place / "out" / "report.html").read_text()


def test_largest_move_comes_first_with_since_when_and_what_differs(place, monkeypatch):
    accept(place, monkeypatch, spread)
    good = {"a": 0.5, "b": 5, "ok": True, "word": "x"}
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert play(place, monkeypatch, good) == []
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    red = play(place, monkeypatch, {**good, "a": 0.9, "b": 7}, {"it ran": False})
    assert [line.split(" ")[1] for line in red] == ["b", "a", "cell"]  # 128 and 1.1 half-bands
    assert red[0].startswith("00_first: b 7 is above its band 4.984 to 5.016, 128.0 half-bands off")
    history = (place / "history.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in history]
    assert f"out since {runs[1]['when']}" in red[0]
    assert f"since the last green run ({runs[0]['when']}): OMP_NUM_THREADS 1 -> 2" in red[0]
    assert [run["notebooks"]["00_first"]["ok"] for run in runs] == [True, False]


def test_report_and_junit_tell_the_same_story(place, monkeypatch):
    accept(place, monkeypatch, spread, reason="<b>first</b>")
    red = play(place, monkeypatch, {"a": 0.9, "b": 5, "ok": True}, {"<i>x</i> \x00 & y": False})
    html = (place / "out" / "report.html").read_text(encoding="utf-8")
    assert red[0].split(",")[0] in html and "<svg" in html and "out since" in html
    assert "<b>first" not in html and "<i>x" not in html
    for outside in ("http://", "https://", "<script", 'src="/'):
        assert outside not in html
    suite = ElementTree.parse(place / "out" / "junit.xml").getroot()
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["runs", "a"]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")


def test_figures_come_from_png_outputs_and_from_pictures_in_html():
    node = notebooks.notebook("x", "y")
    png = {"image/png": "iVBO\nRw0=\n"}
    html = {"text/html": '<img alt="a &amp; b" src="data:image/png;base64,AA">'}
    node.cells[2].outputs = [notebooks.v4.new_output("display_data", png)]
    node.cells[3].outputs = [
        notebooks.v4.new_output("display_data", html),
        notebooks.v4.new_output("display_data", {"text/html": '<img src="https://x.org/y.png">'}),
    ]
    assert figures(node) == [
        (3, "data:image/png;base64,iVBORw0=", "figure of cell 3"),
        (4, "data:image/png;base64,AA", "a & b"),
    ]
    assert figures(None) == []


def test_damaged_baselines_are_one_clear_line(place, monkeypatch):
    (place / "data" / "baselines.json").write_text('{"00_first": {"fast": {"a": {"low": 1}}}}')
    with pytest.raises(ValueError, match=r"baselines\.json is damaged"):
        play(place, monkeypatch, {"a": 1})

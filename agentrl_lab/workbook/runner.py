"""Runs the workbook's notebooks without a browser and says whether all is well."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from agentrl_lab.config import choice, data_dir
from agentrl_lab.workbook import regression, verdict, workbook_report
from agentrl_lab.workbook.execution import EXECUTED, LIMITS, RESULT, Limits, execute
from agentrl_lab.workbook.parameters import convert
from agentrl_lab.workbook.recording import Plain, read_records
from agentrl_lab.workbook.sources import Source, find_notebooks, notebooks_folder, read_source
from agentrl_lab.workbook.workbook_report import NotebookRun

Say = Callable[[str], None]
BASELINES = "baselines.json"


@dataclass(frozen=True, kw_only=True)
class Request:
    """How notebooks are to be run.

    Args:
        out: folder of outputs and report.
        history: file of past runs.
        profile: smoke, fast or full; notebooks get it as PROFILE.
        given: values of other parameters, as a person wrote them.
        cell_timeout: seconds for one cell; None for the profile's limit.
        notebook_timeout: seconds for one notebook; None for the profile's limit.
    """

    out: Path = Path("runs/workbook/latest")
    history: Path = Path("runs/workbook/history.jsonl")
    profile: str = "fast"
    given: Mapping[str, Any] = field(default_factory=dict)
    cell_timeout: int | None = None
    notebook_timeout: int | None = None

    def __post_init__(self) -> None:
        choice("profile", self.profile, LIMITS)
        if "PROFILE" in self.given:
            raise ValueError("PROFILE decides the limits too: give it as --profile, not as -p")

    @property
    def limits(self) -> Limits:
        usual = LIMITS[self.profile]
        return Limits(self.cell_timeout or usual.cell, self.notebook_timeout or usual.notebook)


def run_workbook(names: Sequence[str], request: Request, say: Say) -> list[str]:
    """Runs notebooks and writes report.html and junit.xml.

    Args:
        names: such as 00, 00_be_the_policy or a path; none for all.
        request: how.
        say: told what happens while it happens.

    Returns:
        A line for each thing that is not well, the largest move first; empty if all is well.

    Raises:
        ValueError: nothing was run, since a name, a value, a notebook or a place is refused.
    """
    sources = [read_source(path) for path in find_notebooks(names, notebooks_folder())]
    plans = [(source, _parameters(source, request)) for source in sources]
    regression.check_writable(request.history)
    with locked(request.out):
        runs = [_run(source, values, request, say) for source, values in plans]
        red = _conclude(runs, request)
    say(f"report: {request.out / 'report.html'}")
    return red


def _parameters(source: Source, request: Request) -> dict[str, Any]:
    try:
        return convert(source.parameters, {**request.given, "PROFILE": request.profile})
    except ValueError as error:
        raise ValueError(f"{source.name}: cell {source.parameters_cell}: {error}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps a folder for this process, however it ends.

    Raises:
        ValueError: another run works in it, or it cannot be written.
    """
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ValueError(
            f"another run is working in {folder}: wait for it or choose another --out"
        ) from error
    except OSError as error:
        raise ValueError(f"--out {folder} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def _run(source: Source, values: Mapping[str, Any], request: Request, say: Say) -> NotebookRun:
    folder = (request.out / source.name).resolve()
    say(f"{source.name}: {len(source.node.cells)} cells, profile {request.profile}")
    ended = execute(source, values, folder, request.limits, say)
    executed = verdict.read_executed(folder / EXECUTED)
    found = verdict.failures(source, executed, ended, folder / RESULT, request.limits)
    records: dict[str, Plain] = {}
    try:
        records = read_records(executed) if executed else records
    except ValueError as error:
        found.append(verdict.Failure.at(source, source.last_cell, str(error)))
    bands = regression.read_bands(data_dir() / BASELINES, source.name, request.profile)
    judged = regression.compare(source.name, records, bands, whole=not found)
    run = NotebookRun(source.name, ended.seconds, values, found, judged, executed)
    say(f"{source.name}: {'well' if run.ok else 'NOT WELL'}, {ended.seconds:.1f} s")
    return run


def _conclude(runs: Sequence[NotebookRun], request: Request) -> list[str]:
    """Writes history, report and JUnit file; the lines of what is not well."""
    when, machine = datetime.now(UTC).isoformat(timespec="seconds"), regression.fingerprint()
    entry = {
        "when": when, "profile": request.profile, "fingerprint": machine,
        "notebooks": {run.name: run.entry() for run in runs},
    }  # fmt: skip
    regression.append_history(request.history, entry)
    history = regression.read_history(request.history)
    past = {run.name: regression.runs_of(history, run.name, request.profile) for run in runs}
    values = sorted((v for run in runs for v in run.values), key=lambda v: v.size, reverse=True)
    since = [regression.out_since(past[value.notebook], value) for value in values]
    red = [
        f"{value}, out since {begun}; {regression.changed_since_green(past[value.notebook])}"
        for value, begun in zip(values, since, strict=True)
        if value.out
    ]
    red += [str(failure) for run in runs for failure in run.failures]
    sparks = [workbook_report.spark(past[value.notebook], value) for value in values]
    workbook_report.write_html(
        request.out / "report.html", red=red, when=when, profile=request.profile, runs=runs,
        machine=machine, lines=list(zip(values, since, sparks, strict=True)),
    )  # fmt: skip
    workbook_report.write_junit(request.out / "junit.xml", runs)
    return red


def accept(name: str, reason: str, seeds: Sequence[int], request: Request, say: Say) -> list[str]:
    """Runs a notebook over seeds and writes the bands of its values.

    Args:
        name: of one notebook.
        reason: why the new values are right.
        seeds: at least ten, never used to judge a run.
        request: how.
        say: told what happens while it happens.

    Returns:
        Lines of what went wrong; then nothing is written. Empty if the bands were.

    Raises:
        ValueError: as run_workbook, or too few seeds, or no reason.
    """
    regression.band_of([0.0] * len(seeds), seeds, reason)  # refuses before minutes of work
    (source,) = (read_source(path) for path in find_notebooks([name], notebooks_folder()))
    rows: list[dict[str, Plain]] = []
    with locked(request.out):
        for seed in seeds:
            given, out = {**request.given, "SEED": seed}, request.out / f"seed-{seed}"
            own = dataclasses.replace(request, out=out, given=given)
            run = _run(source, _parameters(source, own), own, say)
            if run.failures:
                return [f"seed {seed}: {failure}" for failure in run.failures]
            rows.append(run.entry()["values"])
    if any(row.keys() != rows[0].keys() for row in rows):
        return [f"{source.name}: not every seed recorded the same values: no band was written"]
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    bands = {
        key: regression.band_of([float(value) for value in column], seeds, reason)
        for key, column in columns.items()
        if not isinstance(column[0], str)
    }
    regression.write_bands(data_dir() / BASELINES, source.name, request.profile, bands)
    for key, band in bands.items():
        say(f"{key}: {band.low:.4g} to {band.high:.4g}, from {len(band.seeds)} seeds")
    return []

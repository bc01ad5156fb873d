"""Runs one notebook by papermill in a process of its own, within limits; leaves no process behind.

Run as a module it is papermill, but for one thing: it ends when the runner that started it is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import yaml

from agentrl_lab.workbook.recording import RESULT_VARIABLE
from agentrl_lab.workbook.sources import KERNEL, Source

Say = Callable[[str], None]
EXECUTED, RESULT = "executed.ipynb", "result.json"
PARAMETERS, LOG = "parameters.yaml", "papermill.log"
BEGUN = re.compile(r"Executing Cell (\d+)-+\s*$")
GRACE = 3.0
"""Seconds that papermill gets to end its kernel before everything of the run is killed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that one cell and one notebook may take."""

    cell: int
    notebook: int


LIMITS = {"smoke": Limits(120, 300), "fast": Limits(300, 600), "full": Limits(3600, 7200)}


@dataclass(frozen=True, slots=True)
class Ended:
    """How papermill ended; cell: begun last; overdue: stopped at the limit of the notebook."""

    code: int
    seconds: float
    cell: int
    overdue: bool
    log: str


def execute(
    source: Source, values: Mapping[str, Any], folder: Path, limits: Limits, say: Say
) -> Ended:
    """Runs a notebook to its end or to a limit.

    Args:
        source: what to run; its file is only read.
        values: of its parameters, in their declared types.
        folder: absolute; its files go there, and its kernel works there.
        limits: on one cell and on the whole.
        say: told of each code cell that begins.
    """
    _prepare(folder, source.path)
    (folder / PARAMETERS).write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
    started, follower = time.perf_counter(), _Follower(source, say)
    process, overdue = _start(source, folder, limits), False
    reading = (process.stdout, folder / LOG)
    reader = threading.Thread(target=follower.follow, args=reading, daemon=True)
    reader.start()
    try:
        process.wait(limits.notebook)
    except subprocess.TimeoutExpired:
        overdue = True
    finally:
        _stop(process, str(folder / RESULT))
        reader.join(GRACE)
    log = (folder / LOG).read_text(encoding="utf-8")
    return Ended(process.returncode, time.perf_counter() - started, follower.cell, overdue, log)


def _prepare(folder: Path, source: Path) -> None:
    """Clears the folder: what an earlier run left there must not speak for this one."""
    if (folder / EXECUTED).resolve() == source.resolve():
        raise ValueError(f"{source} would be overwritten by its own run: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (EXECUTED, RESULT, PARAMETERS, LOG):
        (folder / name).unlink(missing_ok=True)


def _start(source: Source, folder: Path, limits: Limits) -> subprocess.Popen:
    # -P: or a folder agentrl_lab where the runner was started would be taken for the package.
    command = [sys.executable, "-P", "-m", __name__, str(source.path), str(folder / EXECUTED)]
    command += ["-f", str(folder / PARAMETERS), "-k", KERNEL, "--cwd", str(folder)]
    command += ["--execution-timeout", str(limits.cell), "--no-progress-bar", "--log-output"]
    return subprocess.Popen(
        command, env=os.environ | {RESULT_VARIABLE: str(folder / RESULT)}, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, encoding="utf-8", errors="replace",
    )  # fmt: skip


def _stop(process: subprocess.Popen, mark: str) -> None:
    """Ends papermill, its kernel and whatever that started."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _kill_marked(mark)
        process.wait()
        process.stdin.close()


def _kill_marked(mark: str) -> None:
    """Kills the processes of one run, but for this one: their environment names its result file.

    A process group would not do: kernels are leaders of groups of their own.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(RESULT_VARIABLE) == mark and process.pid != os.getpid():
                process.kill()


class _Follower:
    """Reads what papermill prints: keeps it as a log and knows which cell was begun last."""

    def __init__(self, source: Source, say: Say) -> None:
        self.cell, self._source, self._say = 1, source, say

    def follow(self, lines: IO[str], log: Path) -> None:
        with open(log, "w", encoding="utf-8") as file:
            for line in lines:
                file.write(line)
                if begun := BEGUN.match(line):
                    self._begin(int(begun[1]))

    def _begin(self, number: int) -> None:
        injected = self._source.parameters_cell + 1  # papermill counts the cell it adds there
        self.cell = number - (number >= injected)
        cells = self._source.node.cells
        if cells[self.cell - 1].cell_type == "code" and number != injected:
            where = f"{self._source.name}  cell {self.cell}/{len(cells)}"
            self._say(f"  {where}  {self._source.line(self.cell)}")


def _end_with_the_runner() -> None:
    os.read(0, 1)  # returns when the other end is closed, be it by the runner's death
    _kill_marked(os.environ[RESULT_VARIABLE])
    os._exit(1)


if __name__ == "__main__":
    from papermill.__main__ import papermill

    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    papermill()

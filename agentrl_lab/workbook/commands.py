"""The commands workbook, experiment and lab. Heavy imports wait for the command."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer


class _RunUnlessNamed(typer.core.TyperGroup):
    """`workbook 00` is short for `workbook run 00`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in (*self.commands, "--help")
        return super().parse_args(ctx, args if named else ["run", *args])


workbook = typer.Typer(
    cls=_RunUnlessNamed, add_completion=False,
    help="Runs the notebooks without a browser: `workbook 00` is short for `workbook run 00`.",
)  # fmt: skip

Name = Annotated[str, typer.Argument(help="00, 00_be_the_policy or a path.")]
Names = Annotated[list[str] | None, typer.Argument(help="00, 00_be_the_policy or a path; or all.")]
Profile = Annotated[str, typer.Option(help="smoke, fast or full; notebooks get it as PROFILE.")]
Pairs = Annotated[list[str] | None, typer.Option("-p", help="name=value, of the parameters cell.")]
Files = Annotated[list[Path] | None, typer.Option("-f", help="YAML file of names and values.")]
Out = Annotated[Path, typer.Option(help="Folder of outputs and report.")]
History = Annotated[Path, typer.Option(help="File of past runs.")]
Seconds = Annotated[int | None, typer.Option(min=1, help="Seconds (default: by profile).")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Default: free, from 8888 on.")]


@workbook.command("run")
def run_notebooks(
    names: Names = None,
    profile: Profile = "fast",
    pairs: Pairs = None,
    files: Files = None,
    out: Out = Path("runs/workbook/latest"),
    history: History = Path("runs/workbook/history.jsonl"),
    cell_timeout: Seconds = None,
    notebook_timeout: Seconds = None,
) -> None:
    """Runs notebooks, compares what they recorded, and leaves a report; 0 only if all is well."""
    _need("papermill")
    from agentrl_lab.workbook import parameters, runner

    given = parameters.read_given(pairs or [], files or [])
    request = runner.Request(
        out=out, history=history, profile=profile, given=given, cell_timeout=cell_timeout,
        notebook_timeout=notebook_timeout,
    )  # fmt: skip
    _end(runner.run_workbook(names or [], request, _say))


@workbook.command("accept")
def accept_values(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why the new values are right.")],
    seeds: Annotated[str, typer.Option(help="first:end, at least ten.")] = "100:110",
    profile: Profile = "fast",
    out: Out = Path("runs/workbook/accept"),
) -> None:
    """Runs a notebook over seeds and makes the spread of its values the bands to come."""
    _need("papermill")
    from agentrl_lab.workbook import runner

    first, _, end = seeds.partition(":")
    if not (first.isdecimal() and end.isdecimal() and len(first + end) < 16):
        raise ValueError(f"--seeds takes first:end, such as 100:110, got {seeds!r}")
    request = runner.Request(out=out, profile=profile)
    _end(runner.accept(name, reason, range(int(first), int(end)), request, _say))


def experiment(
    name: Annotated[str, typer.Argument(help="Of a study in agentrl_lab/workbook/studies.py.")],
    workers: Annotated[int, typer.Option(min=1, help="Runs side by side, a thread each.")] = 1,
    store: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/experiments"),
) -> None:
    """Makes recorded results anew; what the store holds already is not run again."""
    from agentrl_lab.config import choice, data_dir
    from agentrl_lab.learner.experiments import run_experiment, write_results
    from agentrl_lab.workbook.studies import STUDIES

    choice("experiment", name, STUDIES)
    rows = run_experiment(STUDIES[name], store, workers=workers, say=_say)
    _say(f"wrote {write_results(STUDIES[name], rows, data_dir() / 'results')}")


def lab(
    folder: Annotated[Path, typer.Option("--dir", help="Your own copy.")] = Path("my-notebooks"),
    port: Port = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open one.")] = True,
    reset: Annotated[
        str | None, typer.Option(help="Put this notebook back as delivered, keep yours; no lab.")
    ] = None,
) -> None:
    """Opens your own copy of the notebooks in JupyterLab, on this machine alone."""
    _need("jupyterlab")
    from agentrl_lab.workbook import lab as jupyter
    from agentrl_lab.workbook.sources import notebooks_folder

    if reset is None:
        jupyter.open_lab(notebooks_folder(), folder, port, browser=browser, say=_say)
    else:
        backup = jupyter.reset(notebooks_folder(), folder, reset)
        _say(f"{reset} is back as delivered" + (f"; yours is kept as {backup}" if backup else ""))


def _need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'{module} is not installed; get it by `pip install -e ".[lab]"`')


def _end(red: list[str]) -> NoReturn:
    for line in red:
        print(f"agentrl-lab: {' '.join(line.split())}", file=sys.stderr)
    raise typer.Exit(1 if red else 0)


def _say(text: str) -> None:
    print(text, flush=True)

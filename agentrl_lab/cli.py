"""The command line: training, notebooks, doctor. Heavy imports wait for the command.

Exit codes: 0 done; 1 something is missing, damaged (doctor) or not well (workbook); 2 wrong input;
3 a run that had to stop; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from agentrl_lab import __version__, config
from agentrl_lab.records import Split
from agentrl_lab.workbook import commands

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="A real transformer learns multi-step ticket tasks by PPO, on a laptop.",
)  # fmt: skip

USAGE_ERROR = typer.BadParameter.__base__.__base__
"""What typer raises on wrong words: of click, or of the copy of click that newer typers carry."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def main() -> NoReturn:
    """Runs a command; whatever goes wrong ends in one line and an exit code that says what."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERROR as error:
        code = _complain(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        known = error.filename and error.strerror
        code = _complain(f"{error.filename}: {error.strerror}" if known else str(error), 2)
    except (ValueError, TypeError) as error:
        code = _complain(str(error), 2)
    except RuntimeError as error:
        code = _complain(str(error), _run_error_code(error))
    sys.exit(code if isinstance(code, int) else 0)


def _run_error_code(error: RuntimeError) -> int:
    """2: a folder that cannot be used, 3: a run that broke; anything else is our own fault."""
    codes = {"RunDirError": 2, "CheckpointCorrupt": 3, "NonFiniteUpdate": 3, "WorkerLost": 3}
    code = codes.get(type(error).__name__)
    if code is None:
        raise error
    return code


def _complain(message: str, code: int) -> int:
    print(f"agentrl-lab: {' '.join(message.split())}", file=sys.stderr)
    return code


def _terminate(*_: object) -> NoReturn:
    sys.exit(143)


def with_settings_of(defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one option for every setting of a config, with the setting's own words."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        added = [_option(*setting) for setting in _settings(defaults)]
        command.__signature__ = inspect.Signature([*own, *added])
        command.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
        return command

    return decorate


def _settings(defaults: Any, group: str = "Run") -> list[tuple[str, Any, str, str]]:
    """(name, default, help, group) of every setting of a nested config."""
    words, found = _field_docs(type(defaults)), []
    for field in dataclasses.fields(defaults):
        value = getattr(defaults, field.name)
        if dataclasses.is_dataclass(value):
            found += _settings(value, field.name)
        else:
            found.append((field.name, value, words.get(field.name, ""), group))
    return found


def _option(name: str, default: Any, words: str, group: str) -> inspect.Parameter:
    help_text = f"{words} (default: {default})"
    option = typer.Option(help=help_text, rich_help_panel=f"Settings: {group}")
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None,
        annotation=Annotated[type(default) | None, option],
    )  # fmt: skip


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _refuse_early(standard: Any, given: dict[str, Any], policy: str) -> None:
    """Wrong settings, before torch is loaded; those of a run's policy fit the run's own desk."""
    if not (policy and Path(policy).is_dir()):
        config.with_settings(standard, given)


def _field_docs(kind: type) -> dict[str, str]:
    """The string below each field of a dataclass."""
    body = ast.parse(inspect.getsource(kind)).body[0].body
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    }


@app.callback(invoke_without_command=True)
def _about(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
@with_settings_of(config.TrainConfig())
def train(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run (default: a new one under runs/).")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Trains a policy by PPO and leaves a folder with metrics, checkpoints, result and report."""
    given = _given(settings)
    if resume and (given or out):
        names = [*given, *(["out"] if out else [])]
        named = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ValueError(f"--resume goes on under the run's own settings: leave out {named}")
    _refuse_early(config.TrainConfig(), given, given.get("policy", ""))
    from agentrl_lab.workbook.training import run_training

    say = _say_to(sys.stderr if as_json else sys.stdout)
    result = run_training(out, resume, given, say)
    if as_json:
        print(json.dumps(result))


@app.command()
@with_settings_of(config.EnvConfig())
def evaluate(
    policy: Annotated[
        str, typer.Option(help="A folder (also a run's policy/), or a name under data/policies.")
    ],
    split: Annotated[
        str, typer.Option(help="train, validation, test or unseen (other wording).")
    ] = "test",
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Tasks to play.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="Sample at this temperature.")] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the likeliest token (default).")
    ] = False,
    attempts: Annotated[int, typer.Option(min=1, max=64, help="Attempts a task, for pass^k.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Root of the sampling noise.")] = 0,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Plays tasks with a policy: success with its 95% interval, by kind, fabrication, pass^k."""
    if greedy and temperature is not None:
        raise ValueError("choose --greedy or --temperature, not both")
    if temperature is not None and not 0 < temperature <= 10:
        raise ValueError(f"--temperature must be above 0 and at most 10, got {temperature}")
    config.choice("split", split, Split)
    _refuse_early(config.EnvConfig(), _given(settings), policy)
    from agentrl_lab.workbook.training import evaluation_table, run_evaluation

    seen = run_evaluation(
        policy, split, episodes, temperature=temperature or 0.0, attempts=attempts, seed=seed,
        settings=_given(settings), say=_say_to(sys.stderr),
    )  # fmt: skip
    print(json.dumps(seen.as_dict()) if as_json else evaluation_table(seen))


@app.command()
def play(
    seed: Annotated[int, typer.Option(min=0, help="Which task.")] = 0,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    reward: Annotated[str, typer.Option(help="printed, outcome, process or shaped.")] = "shaped",
) -> None:
    """You are the policy: read the request, call tools, reply; then see how you were scored."""
    from agentrl_lab.workbook.playing import play_in_terminal

    play_in_terminal(seed, split, reward)


@app.command()
def warmstart(
    name: Annotated[str, typer.Argument(help="tiny-base, tiny-raw, tiny-json, tiny-leaky ...")],
    out: Annotated[Path | None, typer.Option(help="Folder (default: data/policies/NAME).")] = None,
) -> None:
    """Makes a starting policy anew by supervised fine-tuning: minutes, always the same recipe."""
    from agentrl_lab.workbook.training import run_warm_start

    run_warm_start(name, out, _say_to(sys.stdout))


@app.command()
def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run's folder, to look into it too.")] = None,
    as_json: Json = False,
) -> None:
    """Looks at versions, cores, memory, data files and, if asked, a run; says what is missing."""
    from agentrl_lab.workbook.doctoring import examine

    findings = examine(run)
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'LOOK'}  {finding.what}: {finding.says}")
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


app.add_typer(commands.workbook, name="workbook")
app.command()(commands.experiment)
app.command()(commands.lab)


def _say_to(stream: Any) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(text, file=stream, flush=True)

    return say


if __name__ == "__main__":
    main()

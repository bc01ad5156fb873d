"""One run of an experiment: a folder named by all that matters, resumed, looked at, made a row."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from agentrl_lab.config import (
    EnvConfig,
    SamplingConfig,
    TrainConfig,
    choice,
    data_dir,
    with_settings,
)
from agentrl_lab.learner.evaluation import evaluate
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.rundir import CONFIG, RESULT, RunDir, RunDirError
from agentrl_lab.learner.trainer import EVALUATION_SEED, resume_run, start_run, ticket_env
from agentrl_lab.records import Split

Row = dict[str, Any]
CURVE = (
    "episodes", "temperature", "validation_success", "success_rate", "fabrication_rate",
    "invalid_rate", "reward_per_episode", "reward_spread", "turns_per_episode",
    "queries_per_episode", "repeats_per_episode", "entropy_per_token", "entropy_per_decision",
    "kl_old_max", "clip_fraction", "grad_norm", "rollbacks", "policy_tokens", "useful_tokens",
    "wrong_tokens", "malformed_tokens", "cut_tokens", "hopeless_tokens",
)  # fmt: skip
"""What a row keeps of each update."""
NUMBERS = (
    "test_success", "untrained_test_success", "validation_success", "episodes", "policy_tokens",
    "rollbacks", "temperature",
)  # fmt: skip
"""What a row keeps of the result."""
ELSEWHERE = "elsewhere.json"
OUTSIDE = ("cells.py", "experiments.py")
"""Modules that order runs, and change nothing in one."""
Settings = Mapping[str, Any]


def run_cell(folder: Path, config: TrainConfig, elsewhere: Sequence[Settings] = ()) -> float:
    """Runs one cell to its end, from where it stood; seconds of training."""
    try:
        trainer = resume_run(folder) if (folder / CONFIG).is_file() else start_run(folder, config)
    except RunDirError as error:
        raise RunDirError(f"seed {config.seed}: {error}") from error
    try:
        seconds = trainer.fit()["seconds"]
        for settings in elsewhere:
            _look_elsewhere(trainer.run, config, settings)
        return seconds
    finally:
        trainer.run.release()


def _look_elsewhere(run: RunDir, config: TrainConfig, settings: Settings) -> None:
    """How the finished policy does in an environment with other settings; kept in the run."""
    seen = run.read(ELSEWHERE) or {}
    if _name_of(settings) not in seen:
        split, temperature, env = there(config.env, settings)
        policy = load_policy(run.path / "policy")
        count = policy.tokenizer.count
        collector = Collector(
            policy, lambda: ticket_env(split, EVALUATION_SEED, env, count), config.sampling
        )
        tasks = range(config.test_tasks)
        found = evaluate(collector, tasks, temperature=temperature, seed=EVALUATION_SEED)
        run.write(ELSEWHERE, seen | {_name_of(settings): found.as_dict()})


def there(env: EnvConfig, settings: Settings) -> tuple[Split, float, EnvConfig]:
    """The split, the temperature and the environment that settings of `elsewhere` name."""
    own = {"split": Split.TEST, "temperature": 0.0}
    split, temperature = ({**own, **settings}[name] for name in own)
    choice("split", split, Split)
    if temperature:
        SamplingConfig(temperature=temperature)  # refuses what is none
    env = with_settings(env, {k: v for k, v in settings.items() if k not in own})
    return Split(split), temperature, env


def _name_of(settings: Settings) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def is_finished(folder: Path, elsewhere: Sequence[Settings]) -> bool:
    """Whether nothing is left to run or to look at."""
    seen = RunDir(folder).read(ELSEWHERE) or {}
    return (folder / RESULT).is_file() and all(_name_of(s) in seen for s in elsewhere)


def row_of(folder: Path, elsewhere: Mapping[str, Settings] | None = None) -> Row:
    """The figures of a finished run: end results and the curve of each metric."""
    run = RunDir(folder)
    result, metrics = run.result(), run.metrics()
    if result is None:
        raise RunDirError(f"the run in {folder} has not finished: run the experiment again")
    curve = {name: [_short(row.get(name)) for row in metrics] for name in CURVE}
    ends = {name: _short(result[name]) for name in NUMBERS}
    sampled = _short(result["test_at_temperature"]["success"]["value"])
    fabricated = _short(result["test"]["fabrication"]["value"])
    ends |= {"test_sampled": sampled, "test_fabrication": fabricated}
    ends |= {"test_reward": _short(result["test"]["reward"])}
    ways = {name: _short(share) for name, share in result["test"]["strategies"].items()}
    seen = run.read(ELSEWHERE) or {}
    found = {name: _ends(seen[_name_of(s)]) for name, s in (elsewhere or {}).items()}
    return ends | {"strategies": ways, "elsewhere": found, "curve": curve}


def _ends(seen: Mapping[str, Any]) -> Row:
    known = [name for name in ("success", "fabrication", "followed") if seen[name]]
    rates = {name: _short(seen[name]["value"]) for name in known}
    return rates | {name: _short(seen[name]) for name in ("invalid_rate", "evasive_rate")}


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def cell_key(config: TrainConfig) -> str:
    """Names a cell: equal for equal settings, code, data and torch, and for nothing else."""
    content = json.dumps(dataclasses.asdict(config), sort_keys=True) + code_and_data()
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@cache
def code_and_data() -> str:
    """A hash of what a run depends on beside its settings."""
    package = Path(__file__).parent.parent
    files = [package / "config.py", package / "records.py"]
    files += sorted((package / "world").glob("*.py"))
    files += sorted(p for p in (package / "learner").glob("*.py") if p.name not in OUTSIDE)
    files += [data_dir() / "phrasings.json", data_dir() / "tickets.json"]
    files += sorted(p for p in (data_dir() / "policies").rglob("*") if p.is_file())
    digest = hashlib.sha256(torch.__version__.encode())
    for file in files:
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()

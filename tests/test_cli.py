"""The command line as a person meets it: right input, wrong input, one line of advice."""

import json
import signal
import subprocess
import sys
import time

import pytest

from agentrl_lab.config import TrainConfig, flatten
from tests.runs import SMALL, command, options

pytestmark = pytest.mark.slow


def refused(done, *words, code=2):
    """Non-zero exit, exactly one line, and it says what to do."""
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == 1 and lines[0].startswith("agentrl-lab: "), done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture(scope="module")
def finished(small_policy, tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    done = command("train", "--out", str(folder), *options({**SMALL, "policy": small_policy}))
    assert done.returncode == 0, done.stderr
    return folder, done


def test_train_prints_progress_and_ends_with_success_and_the_report(finished):
    folder, done = finished
    lines = done.stdout.strip().splitlines()
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert lines[-2].startswith("success before ")
    assert sum("/3  validation" in line for line in lines) == 3
    assert done.stderr == ""


def test_result_holds_the_plain_numbers_and_their_intervals(finished):
    result = json.loads((finished[0] / "result.json").read_text())
    for name in ("validation_success", "test_success", "seconds", "peak_rss_mb"):
        assert isinstance(result[name], float)
    for name in ("test", "test_at_temperature", "untrained_test", "untrained_test_at_temperature"):
        assert {"value", "low", "high", "n"} == result[name]["success"].keys()


def test_report_is_self_contained_and_has_its_parts(finished):
    html = (finished[0] / "report.html").read_text(encoding="utf-8")
    for part in ("Learning curve", "What changed", "Before training", "After training", "alt="):
        assert part in html
    for outside in ("http://", "https://", "<script", "src=\"/"):
        assert outside not in html


def test_folder_with_another_run_is_refused_and_that_run_stays(finished, small_policy):
    before = {p: p.read_bytes() for p in finished[0].rglob("*") if p.is_file()}
    done = command("train", "--out", str(finished[0]), *options({**SMALL, "policy": small_policy}))
    refused(done, "not empty", "--resume")
    assert {p: p.read_bytes() for p in finished[0].rglob("*") if p.is_file()} == before


def test_resume_takes_no_settings(finished):
    done = command("train", "--resume", str(finished[0]), "--learning-rate", "0.1")
    refused(done, "--learning-rate")


def test_every_setting_has_an_option():
    words = command("train", "--help", COLUMNS="250", TERM="dumb").stdout
    for name in flatten(TrainConfig()):
        assert f"--{name.replace('_', '-')}" in words


WRONG = [
    (["train", "--learnin-rate", "1"], ["--learning-rate"]),
    (["train", "--learning-rate", "-1"], ["learning_rate", "above 0", "-1"]),
    (["train", "--learning-rate", "nan"], ["learning_rate"]),
    (["train", "--learning-rate", "fast"], ["--learning-rate", "valid number"]),
    (["train", "--episodes", "0"], ["episodes", "at least 1"]),
    (["train", "--episodes", "1.5"], ["--episodes", "valid integer"]),
    (["train", "--epochs", "5"], ["epochs", "E9"]),
    (["train", "--reward", "shapd"], ["'shaped'"]),
    (["train", "--codec", "functon"], ["'function'"]),
    (["train", "--policy", "tiny-bse"], ["no policy at 'tiny-bse'"]),
    (["train", "--policy", "."], ["config.json"]),
    (["train", "--minibatch-episodes", "48"], ["divisible"]),
    (["train", "--resume", "nowhere"], ["no run to resume"]),
    (["train", "--out", "/proc/run"], ["/proc/run"]),
    (["evaluate", "--policy", "nowhere"], ["no policy at"]),
    (["evaluate", "--policy", "tiny-base", "--split", "tset"], ["'test'"]),
    (["evaluate", "--policy", "tiny-base", "--episodes", "0"], ["--episodes"]),
    (["evaluate", "--policy", "tiny-base", "--codec", "idd"], ["did you mean 'id'"]),
    (["evaluate", "--policy", "tiny-base", "--tools", "varyed"], ["did you mean 'varied'"]),
    (["evaluate", "--policy", "tiny-base", "--temperature", "0"], ["--temperature"]),
    (["evaluate", "--policy", "tiny-base", "--temperature", "1", "--greedy"], ["not both"]),
    (["evaluate"], ["--policy"]),
    (["play", "--reward", "prnted"], ["'printed'"]),
    (["play", "--split", "trian"], ["train"]),
    (["warmstart", "tiny-bass"], ["'tiny-base'"]),
    (["trian"], ["train"]),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_input_is_one_line_that_says_what_to_do(words, said, tmp_path):
    refused(command(*words), *said)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "text"])
def test_damaged_policy_folder_is_one_line(small_policy, tmp_path, damage):
    folder = tmp_path / "policy"
    folder.mkdir()
    if damage != "empty":
        for path in small_policy.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    weights = folder / "model.safetensors"
    match damage:
        case "missing":
            weights.unlink()
        case "cut":
            weights.write_bytes(weights.read_bytes()[:1000])
        case "text":
            (folder / "config.json").write_text("not json")
    refused(command("evaluate", "--policy", str(folder)), str(folder), "restore it")


def test_evaluate_json_is_one_object(small_policy):
    done = command("evaluate", "--policy", str(small_policy), "--episodes", "3", "--json",
                   "--temperature", "1", "--attempts", "2")  # fmt: skip
    seen = json.loads(done.stdout)
    assert seen["success"]["n"] == 3
    assert set(seen["pass_k"]) == {"1", "2"}


def test_a_policy_read_in_another_encoding_is_noticed():
    done = command("evaluate", "--policy", "tiny-id", "--episodes", "2")
    assert done.returncode == 0 and "know another --codec" in done.stderr
    done = command("evaluate", "--policy", "tiny-id", "--episodes", "2", "--codec", "id")
    assert done.returncode == 0 and "invalid actions 0.000" in done.stdout


def test_evaluate_table_names_every_figure(small_policy):
    words = command("evaluate", "--policy", str(small_policy), "--episodes", "3").stdout
    for part in ("success", "95% interval", "fabrication", "invalid actions", "turns", "pass^1",
                 "evasive replies"):  # fmt: skip
        assert part in words


def test_evaluate_takes_a_setting_that_fits_the_desk_of_the_run_alone(tmp_path, small_policy):
    """A cap without a bonus is refused, and this run has one."""
    settings = {**SMALL, "policy": small_policy, "call_bonus": 0.5, "debug_field": "always"}
    command("train", "--out", str(tmp_path / "run"), *options(settings), check=True)
    policy = str(tmp_path / "run" / "policy")
    done = command("evaluate", "--policy", policy, "--episodes", "2", "--call-cap", "1")
    assert done.returncode == 0 and "debug field followed" in done.stdout


def play(*lines):
    return subprocess.run(
        [sys.executable, "-m", "agentrl_lab.cli", "play", "--seed", "0"],
        input="\n".join(lines), capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_play_shows_the_reward_breakdown_at_the_end():
    done = play("", "nonsense", "query S1234", "reply There is no ticket S1234.")
    assert done.returncode == 0
    for part in ("no_call", "ticket_not_found", "you concluded: not_found", "outcome", "total"):
        assert part in done.stdout


def test_play_left_early_scores_nothing():
    done = play("query S1234")
    assert done.returncode == 0
    assert "nothing is scored" in done.stdout


def test_doctor_looks_at_everything_and_at_a_run(finished):
    done = command("doctor", str(finished[0]), "--json")
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert {"python", "torch", "machine", "memory", "disk", "run"} <= found.keys()
    assert found["run"]["says"] == "finished"


def test_doctor_names_a_damaged_checkpoint(small_policy, tmp_path):
    settings = options({**SMALL, "episodes": 4, "policy": small_policy})
    command("train", "--out", str(tmp_path / "run"), *settings, check=True)
    newest = sorted((tmp_path / "run" / "checkpoints").glob("update-*"))[-1]
    (newest / "state.json").write_text("{}")
    done = command("doctor", str(tmp_path / "run"))
    assert done.returncode == 1
    assert f"LOOK  {newest.name}" in done.stdout


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_run_says_how_to_go_on(small_policy, tmp_path, sent, code):
    settings = options({**SMALL, "episodes": 4000, "policy": small_policy})
    words = ["train", "--out", str(tmp_path / "run"), *settings]
    child = subprocess.Popen(
        [sys.executable, "-m", "agentrl_lab.cli", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    while not list((tmp_path / "run").glob("checkpoints/update-000002")):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(sent)
    _, said = child.communicate(timeout=30)
    assert child.returncode == code
    assert "Traceback" not in said
    assert f"--resume {tmp_path / 'run'}" in said


def test_version():
    assert command("--version").stdout == "0.1.0\n"


def test_help_loads_no_torch():
    code = "import sys, agentrl_lab.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--context-tokens", "120"], "context_tokens (120) is too small: the prompt of task"),
        (["--context-tokens", "4096"], "context_tokens must be at most 2048, the positions that"),
    ],
)
def test_train_with_a_context_that_does_not_fit_leaves_no_folder(words, said, tmp_path):
    done = command("train", "--out", str(tmp_path / "run"), *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_evaluate_refuses_several_greedy_attempts():
    done = command("evaluate", "--policy", "tiny-base", "--attempts", "2")
    assert done.returncode == 2 and "greedy attempts are all the same" in done.stderr


def test_errors_of_the_operating_system_name_the_file():
    done = command("workbook", "00", "-f", "nosuch.yaml")
    assert done.returncode == 2
    assert done.stderr == "agentrl-lab: nosuch.yaml: No such file or directory\n"

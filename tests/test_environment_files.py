"""The three files that say what to install agree with each other."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def read_pins(constraints: str) -> tuple[dict[str, str], list[str]]:
    """Package name -> pinned version, and what is wrong with the lines."""
    pins: dict[str, str] = {}
    problems: list[str] = []
    for line in constraints.splitlines():
        text = line.split("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        specifiers = list(requirement.specifier)
        if len(specifiers) != 1 or specifiers[0].operator != "==" or "*" in specifiers[0].version:
            problems.append(f"constraints.txt: {text} is not a pin (name==version)")
            continue
        if name in pins:
            problems.append(f"constraints.txt: {name} is pinned twice")
        pins[name] = specifiers[0].version
    return pins, problems


def range_problems(pyproject: str, constraints: str) -> list[str]:
    """Direct dependencies without a pin, with a pin outside their range, or with two ranges."""
    project = tomllib.loads(pyproject)["project"]
    pins, problems = read_pins(constraints)
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    ranges: dict[str, SpecifierSet] = {}
    for requirement in (Requirement(text) for group in groups for text in group):
        name = canonicalize_name(requirement.name)
        if not any(one.operator in (">=", "==", "~=") for one in requirement.specifier):
            problems.append(f"pyproject.toml: {name} has no lower bound")
        if ranges.setdefault(name, requirement.specifier) != requirement.specifier:
            problems.append(f"pyproject.toml: {name} has two different ranges")
        if name not in pins:
            problems.append(f"constraints.txt: {name} of pyproject.toml is not pinned")
        elif pins[name] not in requirement.specifier:
            problems.append(
                f"constraints.txt: {name}=={pins[name]} is outside {requirement.specifier}"
            )
    return problems


def conda_problems(pyproject: str, environment: str) -> list[str]:
    """What environment.yml installs that the rest of the project does not mean."""
    project = tomllib.loads(pyproject)["project"]
    dependencies = yaml.safe_load(environment)["dependencies"]
    conda = [entry for entry in dependencies if isinstance(entry, str)]
    pip_lines = [line for entry in dependencies if isinstance(entry, dict) for line in entry["pip"]]
    problems: list[str] = []

    pythons = [entry.removeprefix("python=") for entry in conda if entry.startswith("python=")]
    lowest = next(iter(SpecifierSet(project["requires-python"]))).version
    if pythons != [lowest]:
        problems.append(f"environment.yml: python is {pythons}, expected the tested one, {lowest}")
    if "pip" not in conda:
        problems.append("environment.yml: a pip section needs pip among the conda packages")
    others = [e for e in conda if e != "pip" and not e.startswith("python=")]
    if others:
        problems.append(f"environment.yml: {others} would hide the tested pins of constraints.txt")
    if "-c constraints.txt" not in pip_lines:
        problems.append("environment.yml: the pip section does not use constraints.txt")
    installs = [line for line in pip_lines if not line.startswith("-c ")]
    if installs != ["-e .[lab]"]:
        problems.append(f"environment.yml: pip installs {installs}, expected ['-e .[lab]']")
    if "lab" not in project["optional-dependencies"]:
        problems.append("pyproject.toml: there is no extra named lab")
    return problems


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def planted(text: str, old: str, new: str) -> str:
    """The text with its only `old` replaced: a plant that does not take must not pass."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def test_every_direct_dependency_is_pinned_inside_its_range():
    assert range_problems(read("pyproject.toml"), read("constraints.txt")) == []


def test_environment_yml_installs_what_the_project_names():
    assert conda_problems(read("pyproject.toml"), read("environment.yml")) == []


WRONG_RANGES = {
    "pin_missing": ("constraints.txt", "\ntorch==2.13.0\n", "\n", "torch of pyproject"),
    "pin_below_range": ("constraints.txt", "\ntorch==2.13.0\n", "\ntorch==2.12.1\n", "is outside"),
    "pin_above_range": (
        "constraints.txt", "\ntransformers==5.24.0\n", "\ntransformers==6.0.0\n", "is outside",
    ),
    "range_in_place_of_pin": ("constraints.txt", "\nnumpy==", "\nnumpy>=", "is not a pin"),
    "wildcard_in_place_of_pin": (
        "constraints.txt", "\ntorch==2.13.0\n", "\ntorch==2.*\n", "is not a pin",
    ),
    "pinned_twice": (
        "constraints.txt", "\ntorch==2.13.0\n", "\ntorch==2.13.1\nTorch==2.13.0\n", "twice",
    ),
    "new_dependency": ("pyproject.toml", '"typer>=', '"tyro>=1",\n    "typer>=', "tyro of pyproj"),
    "dropped_lower_bound": ("pyproject.toml", '"torch>=2.13,<3"', '"torch<3"', "no lower bound"),
    "two_ranges": (
        "pyproject.toml", '"codespell>=', '"numpy>=1",\n    "codespell>=', "two different ranges",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "message"), WRONG_RANGES.values(), ids=WRONG_RANGES)
def test_range_problems_rejects(file: str, old: str, new: str, message: str):
    texts = {name: read(name) for name in ("pyproject.toml", "constraints.txt")}
    texts[file] = planted(texts[file], old, new)
    problems = range_problems(texts["pyproject.toml"], texts["constraints.txt"])
    assert any(message in problem for problem in problems), problems


WRONG_ENVIRONMENTS = {
    "other_python": ("python=3.11", "python=3.10", "python is"),
    "any_python": ("python=3.11", "python", "python is"),
    "no_pip": ("  - pip\n", "", "needs pip"),
    "no_constraints": ("      - -c constraints.txt\n", "", "does not use constraints"),
    "other_extra": ("-e .[lab]", "-e .[dev]", "pip installs"),
    "no_extra": ("-e .[lab]", "-e .", "pip installs"),
    "conda_package": ("  - pip\n", "  - pip\n  - pytorch=2.13\n", "would hide"),
}


@pytest.mark.parametrize(
    ("old", "new", "message"), WRONG_ENVIRONMENTS.values(), ids=WRONG_ENVIRONMENTS
)
def test_conda_problems_rejects(old: str, new: str, message: str):
    problems = conda_problems(read("pyproject.toml"), planted(read("environment.yml"), old, new))
    assert any(message in problem for problem in problems), problems


def test_conda_problems_rejects_a_raised_python_requirement():
    raised = planted(read("pyproject.toml"), '= ">=3.11"', '= ">=3.12"')
    problems = conda_problems(raised, read("environment.yml"))
    assert any("python is" in problem for problem in problems), problems


@pytest.mark.full
def test_offline_install_takes_all_from_the_wheelhouse(tmp_path):
    """Fetches the packages once, then installs and starts with no network device at all."""
    unplugged = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*unplugged, "true"]).returncode:
        pytest.skip("this system cannot take the network away from a process")
    places = [f"VENV={tmp_path / 'venv'}", f"WHEELS={tmp_path / 'wheels'}"]
    subprocess.run(["make", "wheelhouse", *places], cwd=ROOT, check=True)
    subprocess.run([*unplugged, "make", "install-offline", *places], cwd=ROOT, check=True)
    doctor = [tmp_path / "venv" / "bin" / "agentrl-lab", "doctor"]
    subprocess.run([*unplugged, *doctor], cwd=ROOT, check=True)


def test_offline_install_without_a_wheelhouse_says_what_to_do(tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".created").touch()
    places = [f"VENV={tmp_path / 'venv'}", f"WHEELS={tmp_path / 'none'}"]
    done = subprocess.run(
        ["make", "install-offline", *places], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode != 0 and "copy the one that `make wheelhouse` made" in done.stderr


def test_tested_versions_take_every_python_that_the_readme_promises():
    """Debian 12 has 3.11.2: a pin that wants a later patch release leaves its readers outside."""
    pins, _ = read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    wants = {
        canonicalize_name(found.name): found.metadata.get("Requires-Python")
        for found in distributions()
    }
    late = {n: wants[n] for n in pins if not SpecifierSet(wants.get(n) or "").contains("3.11.0")}
    assert not late


def test_nothing_builds_a_grammar_of_urls_at_import():
    pins, _ = read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert "rfc3987-syntax" not in pins  # jsonschema imports it wherever it is there

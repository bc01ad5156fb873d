"""Draws README's figures from recorded results: `python notebooks/figures.py [--check]`.

Each figure carries the hash of the results it was drawn from, so that an old one is noticed without
comparing pixels, which differ from machine to machine.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, PngImagePlugin

from agentrl_lab.config import data_dir
from agentrl_lab.learner.experiments import read_results
from agentrl_lab.workbook import plots
from agentrl_lab.workbook.lessons import leaking, wasting, ways
from agentrl_lab.workbook.pitfalls import BROKEN, CLEAN
from agentrl_lab.workbook.plots import Picture

FIGURES = Path(__file__).resolve().parent / "figures"
README = FIGURES.parent.parent / "README.md"
SOURCE = "results"
SUCCESS = {"validation_success": "validation success (share)"}


@dataclass(frozen=True)
class Drawn:
    """A figure of one study's rows."""

    study: str
    draw: Callable[[list], Picture]

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return FIGURES / f"{self.study}.png"

    @property
    def origin(self) -> str:
        """What the rows are, as a hash."""
        content = (data_dir() / "results" / f"{self.study}.json").read_bytes()
        return hashlib.sha256(content).hexdigest()

    def picture(self) -> Picture:
        """Drawn anew."""
        return self.draw(read_results(self.study)["rows"])


def both(**metrics: str) -> Callable[[list], Picture]:
    """Clean and broken runs, a panel a metric."""
    return lambda rows: plots.arms(rows, metrics, [CLEAN, BROKEN])


def by_view(rows: list) -> Picture:
    """Success of clean and broken runs at every desk that they were looked at."""
    found = leaking.by_view(rows, [CLEAN, BROKEN], list(leaking.VIEWS))
    return plots.ranges(found, "share of test tasks")


def by_tokens(rows: list) -> Picture:
    """What success costs, in tokens."""
    return wasting.cost_picture(rows, [BROKEN, "strikes", "together"])


def by_way(rows: list) -> Picture:
    """Where five ways to learn end, in words seen and unseen."""
    return plots.ranges(ways.seen_and_unseen(rows), "success, after training")


DRAWN = [
    Drawn("reward_hacking", both(reward_per_episode="reward of an episode", **SUCCESS)),
    Drawn("leakage", by_view),
    Drawn("roller_coaster", both(kl_old_max="largest KL of an update", **SUCCESS)),
    Drawn("wasted_rollouts", by_tokens),
    Drawn("ways_to_learn", by_way),
]


def save(drawn: Drawn) -> None:
    """Writes a figure with its origin."""
    origin = PngImagePlugin.PngInfo()
    origin.add_text(SOURCE, drawn.origin)
    picture = drawn.picture()
    image = Image.open(io.BytesIO(picture.png()))
    FIGURES.mkdir(exist_ok=True)
    image.save(drawn.path, pnginfo=origin, optimize=True)
    print(f"wrote {drawn.path.relative_to(README.parent)}: {picture.sentence}")


def stale() -> list[str]:
    """What is not current, one line each."""
    readme, complaints = README.read_text(encoding="utf-8"), []
    for drawn in DRAWN:
        name = drawn.path.relative_to(README.parent).as_posix()
        if not drawn.path.is_file() or Image.open(drawn.path).info.get(SOURCE) != drawn.origin:
            complaints.append(f"{name} was not drawn from the recorded results")
        if f"![{drawn.picture().sentence}]({name})" not in readme:
            complaints.append(f"README.md does not show {name} with its sentence")
    return complaints


def main() -> int:
    """Draws or, with --check, says what is not current."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="only say what is not current")
    if arguments.parse_args().check:
        print(*(complaints := stale()), sep="\n")
        return bool(complaints)
    for drawn in DRAWN:
        save(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A blind review (G2): two conversations side by side, nobody knows whose, each choice kept.

The file holds a line a choice. Whoever opens it again, after a crash or a new start, goes on where
the last whole line ends. Which side a conversation stands on is drawn from the pair's own name.
"""

from __future__ import annotations

import html
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ipywidgets

from agentrl_lab.workbook.conversations import Conversation, conversation_html
from agentrl_lab.workbook.plots import Page
from agentrl_lab.workbook.widgets import kept_errors, show_widget

LEFT, RIGHT, SAME = "left", "right", "same"
WORDS = {LEFT: "the left one is better", SAME: "no difference", RIGHT: "the right one is better"}
SIDE = ipywidgets.Layout(width="50%", height="420px", overflow="auto", border="1px solid #8888",
                         padding="6px")  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two conversations about one task."""

    name: str
    """Unlike that of any other pair: choices are kept under it."""
    first: Conversation
    second: Conversation

    @property
    def sides(self) -> tuple[Conversation, Conversation]:
        """(left, right), always the same for the same name."""
        swapped = random.Random(f"review/{self.name}").random() < 0.5
        return (self.second, self.first) if swapped else (self.first, self.second)


@dataclass(frozen=True, slots=True)
class Decision:
    """A pair in which the reader preferred one, and which one."""

    name: str
    chosen: Conversation
    other: Conversation


@dataclass(frozen=True, slots=True)
class Agreement:
    """The reader's decisions, by which one a reward pays more."""

    shared: list[Decision]
    """It pays the chosen one more."""
    opposed: list[Decision]
    """It pays the other one more."""
    alike: list[Decision]
    """It pays both the same."""


Reward = Callable[[Conversation], float]


def paid(conversation: Conversation) -> float:
    """The reward that the episode was given."""
    return conversation.trajectory.reward


class BlindReview:
    """Pairs to choose between.

    Args:
        pairs: with names that differ.
        file: where choices are kept; made with the first one.

    Raises:
        ValueError: two pairs have one name, or there is none.
    """

    def __init__(self, pairs: Sequence[Pair], file: Path) -> None:
        names = [pair.name for pair in pairs]
        if not names or len({name for name in names if isinstance(name, str)}) < len(names):
            raise ValueError(f"pairs must have names that differ, texts, at least one: {names}")
        self._pairs, self._file = list(pairs), Path(file)
        self.choices = {name: c for name, c in _read(self._file).items() if name in names}
        self._left, self._right = ipywidgets.HTML(), ipywidgets.HTML()
        self.status = ipywidgets.HTML()
        self.buttons = {
            choice: ipywidgets.Button(description=words, layout=ipywidgets.Layout(width="auto"))
            for choice, words in WORDS.items()
        }
        for choice, button in self.buttons.items():
            button.on_click(lambda _, choice=choice: self._clicked(choice))
        places = [ipywidgets.Box([side], layout=SIDE) for side in (self._left, self._right)]
        rows = [ipywidgets.HBox(places), ipywidgets.HBox(list(self.buttons.values())), self.status]
        self.box = ipywidgets.VBox(rows)
        self._show()

    # Choosing

    @property
    def open(self) -> list[Pair]:
        """The pairs that nobody has chosen in yet."""
        return [pair for pair in self._pairs if pair.name not in self.choices]

    def choose(self, choice: str) -> None:
        """Keeps a choice (left, right or same) for the pair that is shown, and shows the next.

        Raises:
            ValueError: there is no such choice.
        """
        if choice not in WORDS:
            raise ValueError(f"choice must be one of {', '.join(WORDS)}, got {choice!r}")
        if self.open:
            name = self.open[0].name
            _append(self._file, {"pair": name, "choice": choice})
            self.choices[name] = choice
            self._show()

    def _clicked(self, choice: str) -> None:
        with kept_errors(self.status):
            try:
                self.choose(choice)
            except OSError as error:  # the reader's folder, not the widget: nothing to keep
                why = html.escape(f"{self._file}: {error.strerror}")
                self.status.value = f"<p><b>This did not work.</b> Nothing was kept. {why}</p>"

    def _show(self) -> None:
        left, right = self.open[0].sides if self.open else (None, None)
        for place, side in ((self._left, left), (self._right, right)):
            place.value = conversation_html(side.messages[1:]) if side else "<p>all done</p>"
        for button in self.buttons.values():
            button.disabled = not self.open
        done = len(self._pairs) - len(self.open)
        kept = f"kept in {self._file}" if self.choices else "nothing kept yet"
        self.status.value = f"<p>{done} of {len(self._pairs)} chosen, {html.escape(kept)}</p>"

    def _ipython_display_(self) -> None:
        text = f"Two conversations side by side, with buttons: {', '.join(WORDS.values())}."
        show_widget(self.box, Page(f"<p>{text}</p>", text))

    # What came of it

    def judged_by(self, reward: Reward = paid) -> Agreement:
        """What a reward says of the pairs in which the reader preferred one."""
        found = Agreement([], [], [])
        for decision in self.decisions():
            lead = round(reward(decision.chosen) - reward(decision.other), 9)
            (found.alike if lead == 0 else found.shared if lead > 0 else found.opposed).append(
                decision
            )
        return found

    def decisions(self) -> list[Decision]:
        """The pairs in which the reader preferred one."""
        found = []
        for pair in self._pairs:
            left, right = pair.sides
            match self.choices.get(pair.name):
                case "left":
                    found.append(Decision(pair.name, left, right))
                case "right":
                    found.append(Decision(pair.name, right, left))
        return found


# The file


def _append(file: Path, line: dict[str, str]) -> None:
    """Adds a line and waits until it is on the disk; a line that was torn is closed first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab+") as handle:
        if handle.tell():
            handle.seek(-1, os.SEEK_END)
            if handle.read(1) != b"\n":
                handle.write(b"\n")
        handle.write((json.dumps(line) + "\n").encode())
        handle.flush()
        os.fsync(handle.fileno())


START = '{"pair": '
"""How each line begins."""


def _lines(file: Path) -> list[str]:
    """The lines of the file, each with one choice, also where a crash had glued two together."""
    try:
        text = file.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): give another file") from error
    return [line.strip() for line in text.replace("}{", "}\n{").splitlines()]


def _read(file: Path) -> dict[str, str]:
    """Pair -> choice, the newest one; torn lines are passed over.

    What is no JSON counts as torn once a choice was read, and before that if it begins as one.

    Raises:
        ValueError: the file is there and holds something else.
    """
    if not file.exists():
        return {}
    choices: dict[str, str] = {}
    for number, text in enumerate(_lines(file), 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None if choices or START.startswith(text[: len(START)]) else text
        match line:
            case None:
                pass
            case {"pair": str(name), "choice": str(choice)} if choice in WORDS:
                choices[name] = choice
            case _:
                raise ValueError(
                    f"line {number} of {file} holds no choice of a review: give another file"
                )
    return choices

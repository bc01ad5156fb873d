"""Training inside a notebook: a dashboard that moves, snapshots to look back at, a way to stop."""

from __future__ import annotations

import contextlib
import html
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ipywidgets
from torch import Tensor

from agentrl_lab.config import TrainConfig, with_settings
from agentrl_lab.learner.policy import Policy, load_policy
from agentrl_lab.learner.trainer import Trainer, start_run
from agentrl_lab.records import Split
from agentrl_lab.workbook.conversations import Conversation, conversation_html, converse
from agentrl_lab.workbook.plots import Page, Picture, blank, learning_curve
from agentrl_lab.workbook.widgets import Worker, show_widget

Row = dict[str, Any]
Hook = Callable[[Trainer, Row], None]


class Stopped(Exception):
    """Raised in a run that was asked to stop."""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """A context that a second press of the stop button does not reach; in threads none does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class LiveRun:
    """A training run in a temporary folder, with what a notebook shows of it.

    Args:
        settings: settings that differ from the default ones.
        snapshots: updates whose policy is kept, besides the untrained and the newest one.
        after_update: called with trainer and row after each update; it may meddle.
    """

    def __init__(
        self, settings: dict[str, Any], *, snapshots: Sequence[int] = (),
        after_update: Hook = lambda trainer, row: None,
    ) -> None:  # fmt: skip
        self.config = with_settings(TrainConfig(), settings)
        self.rows: list[Row] = []
        self.result: Row | None = None
        self.ended = False
        """Whether it went to its end, or was stopped; not while it trains, or after an error."""
        self._wanted, self._after_update = set(snapshots), after_update
        self._weights: dict[int, dict[str, Tensor]] = {}
        self.image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width="100%"))
        self.status = ipywidgets.HTML()
        self._watched = False

    def train(self, should_stop: Callable[[], bool] = lambda: False) -> LiveRun:
        """Trains to the end, or until it is asked to stop or interrupted; all rows are kept."""
        with tempfile.TemporaryDirectory(prefix="agentrl-lab-") as folder:
            try:
                with contextlib.ExitStack() as stack:
                    trainer = start_run(Path(folder) / "run", self.config)
                    stack.callback(trainer.run.release)
                    self.result = trainer.fit(lambda row: self._note(trainer, row, should_stop))
                said = "finished"
            except (Stopped, KeyboardInterrupt):
                done = f"after update {self.rows[-1]['update']}" if self.rows else "at the start"
                said = f"stopped {done}"
            with undisturbed():
                self.ended = True
                self._show(said)
        return self

    def _note(self, trainer: Trainer, row: Row, should_stop: Callable[[], bool]) -> None:
        kept = {at: own for at, own in self._weights.items() if at == 0 or at in self._wanted}
        weights = {name: w.clone() for name, w in trainer.policy.state_dict().items()}
        self._weights = {**kept, row["update"]: weights}
        self.rows.append(row)  # after the weights: a stop between them leaves no row without any
        self._show(f"update {row['update']} of {self.config.num_updates}")
        self._after_update(trainer, row)
        if should_stop():
            raise Stopped

    def watch(self) -> None:
        """Shows the dashboard and trains while it moves; the last picture stays."""
        said = "While it trains, the dashboard is redrawn here after each update."
        show_widget(self.dashboard(), Page(f"<p>{said}</p>", said))
        self.train()

    def last(self, metric: str) -> float:
        """The newest figure of a metric, 0 where no update has one."""
        figures = (row.get(metric) for row in reversed(self.rows))
        return next((figure for figure in figures if figure is not None), 0.0)

    def dashboard(self) -> ipywidgets.VBox:
        """A picture and a line that follow the training."""
        self._watched = True  # a picture takes half a second: none is drawn that nobody sees
        return ipywidgets.VBox([self.image, self.status])

    def picture(self) -> Picture:
        """The dashboard as it stands."""
        return learning_curve(self.rows) if self.rows else blank("Nothing was trained yet.")

    @property
    def snapshots(self) -> list[int]:
        """Updates whose policy can be looked at; the untrained one always."""
        return sorted(self._weights) or [0]

    def policy_at(self, update: int) -> Policy:
        """The policy as it was after an update.

        Raises:
            ValueError: no snapshot was kept of it; the message says of which.
        """
        if update not in self.snapshots:
            raise ValueError(f"update must be one of {self.snapshots}, got {update}")
        policy = load_policy(self.config.policy)
        if update in self._weights:
            policy.load_state_dict(self._weights[update])
        return policy

    def last_policy(self) -> Policy:
        """The policy after the last update, also of a run that was stopped."""
        return self.policy_at(self.snapshots[-1])

    def conversations(self, update: int, tasks: Sequence[int]) -> list[Conversation]:
        """What the policy did with validation tasks after an update, greedily."""
        policy = self.policy_at(update)
        return converse(policy, tasks, self.config.env, self.config.sampling, Split.VALIDATION)

    def _show(self, status: str) -> None:
        if self._watched:
            picture = self.picture()
            self.image.value, self.image.alt = picture.png(), picture.sentence
        self.status.value = f"<p>{html.escape(status)}</p>"


class Laboratory:
    """Sliders for a short run of the reader's own, with Start and Stop; nothing runs by itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings, self.run = settings, LiveRun(settings)
        wide = {"layout": ipywidgets.Layout(width="520px"), "style": {"description_width": "180px"}}
        self.rate = ipywidgets.SelectionSlider(
            options=[1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3], value=1e-4,
            description="learning rate", **wide,
        )  # fmt: skip
        self.temperature = ipywidgets.FloatSlider(
            min=0.3, max=1.5, step=0.1, value=1.0, description="first temperature", **wide
        )
        self.worker = Worker(self._train, "Train")
        self.place = ipywidgets.VBox([])
        self.box = ipywidgets.VBox([self.place, self.rate, self.temperature, self.worker.box])

    def _train(self, should_stop: Callable[[], bool]) -> str:
        chosen = {"learning_rate": self.rate.value, "temperature_start": self.temperature.value}
        self.run = LiveRun(self._settings | chosen)
        self.place.children = (self.run.dashboard(),)
        self.run.train(should_stop)
        return self.run.picture().sentence

    def _ipython_display_(self) -> None:
        text = "Sliders for learning rate and first temperature, buttons to train and to stop."
        show_widget(self.box, Page(f"<p>{text}</p>", text))


def conversation_page(conversation: Conversation) -> Page:
    """A conversation and its verdict."""
    body = conversation_html(conversation.messages)
    return Page(f"{body}<p><b>{html.escape(conversation.verdict)}</b></p>", conversation.verdict)

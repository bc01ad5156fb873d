"""The reader is the policy: buttons and fields in place of tokens, the same desk and reward."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets
from matplotlib.figure import Figure

from agentrl_lab.records import Call
from agentrl_lab.workbook.conversations import conversation_html
from agentrl_lab.workbook.playing import verdict
from agentrl_lab.workbook.plots import BLUE, GREY, ORANGE, Picture, tidy
from agentrl_lab.workbook.widgets import choice_of, kept_errors, show_widget
from agentrl_lab.world.desk import STATUSES
from agentrl_lab.world.env import TicketEnv

TOOLS: Mapping[str, Sequence[str]] = {
    "query_ticket": ("ticket_id",),
    "update_ticket": ("ticket_id", "new_status"),
    "reply": ("content",),
}
LOG = ipywidgets.Layout(
    height="330px", overflow="auto", border="1px solid #8888", padding="6px",
    flex_flow="column-reverse",  # the newest message stays in view
)  # fmt: skip
CONTROLS = ipywidgets.Layout(min_width="330px", flex="0 0 auto")
RESULT = ipywidgets.Layout(height="400px", overflow="auto")


class DeskPanel:
    """Tasks for the reader to work, one after the other.

    Args:
        make_env: builds the environment; one plays all tasks.
        tasks: numbers of the tasks, in the order in which they come.

    Raises:
        ValueError: there is no task, or a task offers other tools than the buttons have.
    """

    def __init__(self, make_env: Callable[[], TicketEnv], tasks: Sequence[int]) -> None:
        if not len(tasks):
            raise ValueError("tasks must hold at least one number of a task, got none")
        self.env, self.tasks = make_env(), list(tasks)
        self.at, self.finished, self.succeeded, self.fabricated = 0, 0, 0, 0
        self._build()
        self.begin(0)

    # Playing, with or without a browser

    def begin(self, number: int) -> None:
        """Starts task `number` of the list; an unfinished one is given up without a score."""
        self.at = number % len(self.tasks)
        self.env.reset(options={"index": self.tasks[self.at]})
        offered = sorted(tool.name for tool in self.env.task.tools)
        if offered != sorted(TOOLS):
            raise ValueError(f"the buttons are for {', '.join(TOOLS)}; the desk offers {offered}")
        self.rewards: list[float] = []
        self.note = "Read the request and act."
        self._show()

    def act(self, tool: str, **arguments: str) -> float:
        """Makes one call and returns the reward of this turn.

        Raises:
            ValueError: the task is finished.
        """
        if self.env.stop_reason is not None:
            raise ValueError("this task is finished: go on to the next one")
        _, reward, *_ = self.env.play(self.env.codec.render(Call(tool, arguments)))
        self.rewards.append(reward)
        self.note = f"That turn earned {reward:+.2f}."
        if self.env.stop_reason is not None:
            self._score()
        self._show()
        return reward

    def _score(self) -> None:
        outcome = self.env.outcome
        self.finished += 1
        self.succeeded += outcome.success
        self.fabricated += outcome.fabricated
        self.note = verdict(self.env)

    @property
    def summary(self) -> str:
        """The counts so far."""
        return (
            f"{self.finished} tasks finished, {self.succeeded} of them right, "
            f"{self.fabricated} with a claim of something that did not happen"
        )

    # What is shown

    def picture(self) -> Picture:
        """The reward of each turn and its sum."""
        return reward_picture(self.rewards, self.env.config.max_turns)

    def _build(self) -> None:
        self.log, self.result = ipywidgets.HTML(), ipywidgets.HTML()
        self.image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width="330px"))
        self.tool = choice_of({tool: tool for tool in TOOLS}, description="tool")
        self.fields = {
            "ticket_id": ipywidgets.Text(description="ticket_id", placeholder="S1234"),
            "new_status": choice_of({s: s for s in STATUSES}, description="new_status"),
            "content": ipywidgets.Text(description="content", placeholder="what you tell them"),
        }
        self.go = ipywidgets.Button(description="Make the call", button_style="primary")
        self.next = ipywidgets.Button(description="Next task")
        self.tool.observe(lambda change: self._fit_fields(), names="value")
        self.go.on_click(self._call)
        self.next.on_click(lambda button: self.begin(self.at + 1))
        self._fit_fields()
        controls = [self.tool, *self.fields.values(), ipywidgets.HBox([self.go, self.next])]
        log = ipywidgets.Box([self.log], layout=LOG)
        left = ipywidgets.VBox([*controls, self.image], layout=CONTROLS)
        right = ipywidgets.Box([self.result], layout=RESULT)
        self.box = ipywidgets.VBox([log, ipywidgets.HBox([left, right])])

    def _fit_fields(self) -> None:
        """Only the chosen tool's arguments can be filled in."""
        for name, field in self.fields.items():
            field.disabled = name not in TOOLS[self.tool.value]

    def _call(self, button: Any) -> None:
        arguments = {name: self.fields[name].value for name in TOOLS[self.tool.value]}
        with kept_errors(self.result):
            if self.env.stop_reason is None:
                self.act(self.tool.value, **arguments)

    def _show(self) -> None:
        picture = self.picture()
        self.image.value, self.image.alt = picture.png(), picture.sentence
        self.log.value = conversation_html(self.env.messages)
        head = f"task {self.at + 1} of {len(self.tasks)}. {self.summary}."
        self.result.value = (
            f'<p>{html.escape(head)}</p><pre style="line-height:1.4">{html.escape(self.note)}</pre>'
        )
        self.go.disabled = self.env.stop_reason is not None

    def _ipython_display_(self) -> None:
        show_widget(self.box, self.picture())


def reward_picture(rewards: Sequence[float], max_turns: int) -> Picture:
    """Bars for the reward of each turn, a line for their sum."""
    figure = Figure(figsize=(5.2, 2.6), layout="constrained")
    axes = figure.subplots()
    turns = range(1, len(rewards) + 1)
    sums = [sum(rewards[:turn]) for turn in turns]
    axes.bar(turns, rewards, color=[BLUE if r >= 0 else ORANGE for r in rewards], width=0.6)
    axes.plot(turns, sums, "o--", color=GREY)
    for turn, reward in zip(turns, rewards, strict=True):
        axes.annotate(
            f"{reward:+.2f}", (turn, reward), ha="center", fontsize=9,
            va="bottom" if reward >= 0 else "top",
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlim=(0.4, max_turns + 0.6), ylim=(-1.35, 1.35), xlabel="turn", ylabel="reward")
    tidy(axes, grid=None)
    total = f"{sums[-1]:+.2f}" if sums else "0"
    return Picture(figure, f"Reward after {len(rewards)} of {max_turns} turns: {total} in all.")

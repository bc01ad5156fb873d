"""What a policy is shown, varied: another cut, another order of blocks, a line left out.

A `View` says how the desk is shown; `ViewedEnv` shows it so. Rules, rewards and judge are those of
`TicketEnv`: a view changes what the policy reads and nothing else. Knows no training.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from agentrl_lab.config import EnvConfig, SamplingConfig, choice
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.records import Message
from agentrl_lab.workbook.lessons.cutting import WHOLE, Show, by_field, survival
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.information import FIELDS, hide
from agentrl_lab.world.observations import SYSTEM_PROMPT, CountTokens
from agentrl_lab.world.plans import best_plan
from agentrl_lab.world.rewards import preset

_TOOLS = (
    "{%- if tools -%}<|tools|>{%- for tool in tools -%}{%- set f = tool.function -%}{{ f.name }}"
    "({{ f.parameters.properties | join(', ') }}): {{ f.description }}. {%- endfor -%}<|end|>"
    "{%- endif -%}"
)
_EACH = "{%- for message in messages -%}<|{{ message.role }}|>{{ message.content }}<|end|>"
_WRITE = "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
_IN_FRONT = "{%- if message.role == 'system' -%}" + _TOOLS + "{%- endif -%}"
TEMPLATES = {
    "after the rules": _EACH + _IN_FRONT + "{%- endfor -%}" + _WRITE,
    "last": _EACH + "{%- endfor -%}" + _TOOLS + _WRITE,
    "nowhere": _EACH + "{%- endfor -%}" + _WRITE,
}
"""Where the tools stand -> a chat template for the shipped policies. Last: behind the request."""


def same(message: Message) -> Message:
    """A message as it is."""
    return message


def without_steps(message: Message) -> Message:
    """A message without its line "steps left"."""
    return Message(message.role, re.sub(r"\s*steps left: \d+$", "", message.content))


def without_rules(message: Message) -> Message:
    """A message without the rules of the desk, which only the first one has."""
    return Message(message.role, message.content.removeprefix(SYSTEM_PROMPT).lstrip())


@dataclass(frozen=True, kw_only=True)
class View:
    """How the desk is shown. The defaults are what `tiny-trained` was trained on."""

    result: Show = by_field
    """Cuts the answer of a tool."""
    budget: int = EnvConfig().result_budget
    """Tokens of an answer."""
    message: Callable[[Message], Message] = same
    """Changes a message before it is shown."""
    tools: str = "after the rules"
    """Where the tools stand: a key of TEMPLATES."""

    def __post_init__(self) -> None:
        choice("tools", self.tools, TEMPLATES)


class ViewedEnv(TicketEnv):
    """The desk under a view."""

    def __init__(self, view: View, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._view = view

    def reset(self, **named: Any) -> tuple[str, dict[str, Any]]:
        _, info = super().reset(**named)
        self.messages = tuple(self._view.message(message) for message in self.messages)
        return self._observation(), info

    def play(self, action: str, *, finished: bool = True) -> tuple[str, float, bool, bool, dict]:
        _, *rest = super().play(action, finished=finished)
        shown = self._view.result(self._answer, self._view.budget, self._count_tokens)
        steps_left = self.config.max_turns - self.outcome.turns
        answer = Message("tool", f"{shown}\nsteps left: {steps_left}")
        self.messages = (*self.messages[:-1], self._view.message(answer))
        return self._observation(), *rest

    def _execute(self, call: Any) -> Any:
        executed = super()._execute(call)
        self._answer = executed[1]  # raw: what `play` shows of it has been cut already
        return executed


def with_tools(tokenizer: ChatTokenizer, place: str) -> ChatTokenizer:
    """The same tokenizer with the tools elsewhere: at a key of TEMPLATES."""
    plain = copy.deepcopy(tokenizer.tokenizer)
    plain.chat_template = TEMPLATES[place]
    return ChatTokenizer(plain)


def play_view(
    policy: Policy, view: View, tasks: Sequence[int], *, temperature: float, seed: int = 0
) -> list[Trajectory]:
    """A policy's episodes on validation tasks under a view.

    Same tasks and seed, same noise: two views can be compared task by task.
    """
    reader = copy.copy(policy)
    reader.tokenizer = with_tools(policy.tokenizer, view.tools)

    def make() -> TicketEnv:
        return ViewedEnv(view, "validation", count_tokens=reader.tokenizer.count)

    collector = Collector(reader, make, SamplingConfig())
    return collector.collect(tasks, temperature=temperature, seed=[seed])


def best_possible(view: View, tickets: Iterable[Mapping[str, Any]], count: CountTokens) -> float:
    """The share of tasks that the best policy for the outcome can solve under a view's answers.

    A field that loses a part of its value in any of the tickets counts as hidden.

    Args:
        view: only its `result` and `budget` count: the oracle needs no rules and no tools.
        tickets: raw answers that the view has to cut.
        count: tokens of a text.
    """
    shown: list[Callable[[str], str]] = []
    cut = [survival(ticket, view.result(ticket, view.budget, count)) for ticket in tickets]
    for name in FIELDS:
        if any(states[name] != WHOLE for states in cut):
            shown.append(hide(name))

    def show(saw: str) -> str:
        return reduce(lambda seen, hidden: hidden(seen), shown, saw)

    # Three turns are enough for every task, and quick to search.
    return best_plan(preset("outcome"), show=show, max_turns=3).success


class Estimate(NamedTuple):
    """A number with its 95% interval; low = high = value where it is exact."""

    value: float
    low: float
    high: float


def paired_difference(changed: Sequence[bool], before: Sequence[bool]) -> Estimate:
    """Success under a change minus success before it, over the same tasks.

        d = (b - c) / (n + 2),   s = sqrt(b + c + 1 - (b - c)^2 / (n + 2)) / (n + 2)

    b tasks were won by the change and c lost; the interval is d +- 1.96 s. Half a task is added
    to each of the four cells, so that no difference in few tasks is not taken for certainty.

    Raises:
        ValueError: the two have not the same tasks, or none.

    Source: Agresti and Min 2005, Statistics in Medicine 24.
    """
    n = len(before)
    if len(changed) != n or not n:
        raise ValueError(f"expected the same tasks twice, got {len(changed)} and {n}")
    won = sum(a and not b for a, b in zip(changed, before, strict=True))
    lost = sum(b and not a for a, b in zip(changed, before, strict=True))
    middle = (won - lost) / (n + 2)
    half = 1.96 * (won + lost + 1 - (won - lost) ** 2 / (n + 2)) ** 0.5 / (n + 2)
    return Estimate((won - lost) / n, middle - half, middle + half)

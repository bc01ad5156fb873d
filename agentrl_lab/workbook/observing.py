"""What a policy is shown, varied: another cut, another order of blocks, a line left out.

A `View` says how the desk is shown; `ViewedEnv` shows it so. Rules, rewards and judge are those of
`TicketEnv`: a view changes what the policy reads and nothing else. Knows no training.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentrl_lab.config import EnvConfig, SamplingConfig, choice
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.records import Message
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.observations import SYSTEM_PROMPT, CountTokens, summarize

Show = Callable[[Mapping[str, Any], int, CountTokens], str]
"""(raw answer, budget in tokens, how to count them) -> the text that the policy reads."""


# Ways to cut an answer


def by_field(answer: Mapping[str, Any], budget: int, count: CountTokens) -> str:
    """The package's own summary (B3)."""
    return summarize(answer, budget=budget, count_tokens=count)


def keep_start(answer: Mapping[str, Any], budget: int, count: CountTokens) -> str:
    """The longest beginning of the JSON text that fits: what a plain limit on length does."""
    text = as_json(answer)
    return text[: _most(len(text), lambda size: count(text[:size]) <= budget)]


def keep_end(answer: Mapping[str, Any], budget: int, count: CountTokens) -> str:
    """The longest end of the JSON text that fits: what a log viewer does."""
    text = as_json(answer)
    size = _most(len(text), lambda size: count(text[len(text) - size :]) <= budget)
    return text[len(text) - size :]


def as_json(value: Any) -> str:
    """The text of an API answer, without blanks, fields in the order they came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest size that fits, 0 if none does. By halves: to count a long text takes time."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


WHOLE, PART, NAME, PIECE, LOST = (
    "name and value", "name, part of the value", "name only", "a piece, no name", "lost",
)  # fmt: skip


def survival(answer: Mapping[str, Any], text: str) -> dict[str, str]:
    """What a cut text still says about each field of the answer, in the answer's order.

    >>> survival({"id": 7, "paid": True, "team": "x"}, '{"id":7,"paid":t')
    {'id': 'name and value', 'paid': 'name, part of the value', 'team': 'lost'}
    """
    listed = re.search(r'"more":"([^"]*)', text)
    names = listed[1].split() if listed else []
    return {name: _state(name, as_json(value), text, names) for name, value in answer.items()}


def _state(name: str, value: str, text: str, names: Sequence[str]) -> str:
    _, found, rest = text.partition(f'"{name}":')
    if found and rest.startswith(value):
        return WHOLE
    if found and rest.strip('"'):
        return PART
    if found or name in names:
        return NAME
    return PIECE if text[:1] not in ("", "{") and text[:16] in value else LOST


# Views


_TOOLS = (
    "{%- if tools -%}<|tools|>{%- for tool in tools -%}{%- set f = tool.function -%}{{ f.name }}"
    "({{ f.parameters.properties | join(', ') }}): {{ f.description }}. {%- endfor -%}<|end|>"
    "{%- endif -%}"
)
_LOOP = (
    "{%- for message in messages -%}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "MIDDLE{%- endfor -%}END{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)


def _template(middle: str = "", end: str = "") -> str:
    return _LOOP.replace("MIDDLE", middle).replace("END", end)


TEMPLATES = {
    "after the rules": _template(
        middle="{%- if message.role == 'system' -%}" + _TOOLS + "{%- endif -%}"
    ),
    "last": _template(end=_TOOLS),
    "nowhere": _template(),
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


def play_view(
    policy: Policy, view: View, tasks: Sequence[int], *, temperature: float, seed: int = 0
) -> list[Trajectory]:
    """A policy's episodes on validation tasks under a view.

    Same tasks and seed, same noise: two views can be compared task by task.
    """
    reader = copy.copy(policy)
    plain = copy.deepcopy(policy.tokenizer.tokenizer)
    plain.chat_template = TEMPLATES[view.tools]
    reader.tokenizer = ChatTokenizer(plain)

    def make() -> TicketEnv:
        return ViewedEnv(view, "validation", count_tokens=reader.tokenizer.count)

    collector = Collector(reader, make, SamplingConfig())
    return collector.collect(tasks, temperature=temperature, seed=[seed])


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

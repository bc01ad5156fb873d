"""One task played by a policy, as a conversation to read."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.rollout import Collector
from agentrl_lab.learner.trajectories import Trajectory
from agentrl_lab.records import Call, Message, Split
from agentrl_lab.world.env import TicketEnv


@dataclass(frozen=True)
class Conversation:
    """What was said in an episode, and what came of it."""

    messages: Sequence[Message]
    trajectory: Trajectory

    @property
    def verdict(self) -> str:
        """One line: did it do the work, and did it tell the truth?"""
        outcome = self.trajectory.outcome
        said = (
            f"claimed {'a change that did not happen' if outcome.fabricated else 'nothing false'}"
        )
        result = "succeeded" if outcome.success else "failed"
        return f"{result}, {said}, reward {self.trajectory.reward:+.2f} ({outcome.stop.value})"


def converse(
    policy: Policy, tasks: Sequence[int], env: EnvConfig, sampling: SamplingConfig,
    split: Split = Split.TEST,
) -> list[Conversation]:  # fmt: skip
    """A policy's greedy episodes on some tasks, played side by side."""
    made: list[TicketEnv] = []

    def make() -> TicketEnv:
        made.append(TicketEnv(split, 0, env, count_tokens=policy.tokenizer.count))
        return made[-1]

    played = Collector(policy, make, sampling).collect(tasks, temperature=0.0, seed=[0])
    return [Conversation(env.messages, t) for env, t in zip(made, played, strict=True)]


def call_in_words(call: Call) -> str:
    """A call as it was understood: its tool, and each argument with its value."""
    named = (f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in call.arguments.items())
    return f"{call.tool}({', '.join(named)})"


ROLES = {
    "system": ("rules", "#8886"), "user": ("customer", "#0072B2"),
    "assistant": ("agent", "#D55E00"), "tool": ("desk", "#009E73"),
}  # fmt: skip
"""Who speaks: the word shown, and the colour of the line beside it."""


def conversation_html(messages: Sequence[Message]) -> str:
    """Messages as a page shows them: who speaks in a word and a coloured line; text escaped."""
    blocks, style = [], "padding:2px 8px;margin:4px 0;line-height:1.4"
    for message in messages:
        who, colour = ROLES[message.role]
        blocks.append(
            f'<div style="border-left:4px solid {colour};{style}">'
            f'<b>{who}</b><br><span style="font-family:monospace;white-space:pre-wrap;'
            f'overflow-wrap:anywhere">'
            f"{html.escape(message.content)}</span></div>"
        )
    return "".join(blocks)

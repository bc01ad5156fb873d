"""TicketEnv: a thin text shell over the desk with Gymnasium's reset/step contract.

One object plays one episode after another; each reset builds a new desk, so no state leaks (H4).
Holds the one-call rule, three strikes (F4), the step limit (E8) and the stop reasons. Knows no
tokens: the count of a result's tokens is a function that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from agentrl_lab.config import EnvConfig, choice
from agentrl_lab.records import (
    Call,
    InvalidKind,
    Message,
    ParseFailure,
    Split,
    StopReason,
)
from agentrl_lab.world.desk import STANDARD_TOOLS, TicketDesk
from agentrl_lab.world.id_codec import codec_of
from agentrl_lab.world.observations import (
    CountTokens,
    count_words,
    invalid_answer,
    opening_messages,
    tool_message,
    tool_specs,
)
from agentrl_lab.world.outcomes import EpisodeOutcome, OutcomeKeeper
from agentrl_lab.world.parser import one_call
from agentrl_lab.world.rewards import RewardBreakdown, RewardSpec, reward_of
from agentrl_lab.world.tampering import Answers
from agentrl_lab.world.tasks import Task, make_task, with_payment
from agentrl_lab.world.toolsets import with_tools

TASKS_PER_SEED = 1_000_000
TaskSource = Callable[[int], Task]


class EpisodeOver(RuntimeError):
    """The episode has stopped (or was never started): call reset() first."""


class AnyText(gym.Space[str]):
    """Every str is a member: a policy may write anything."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short random text: mostly not an action, as a raw policy's would be."""
        letters = self.np_random.choice(list('<>={}":/_ aceiklnopqrstuy019'), size=24)
        return "".join(letters)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    def __repr__(self) -> str:
        return "AnyText()"


class TicketEnv(gym.Env[str, str]):
    """A ticket desk to be worked by text.

    The observation is the newest block of the conversation; `messages` holds all blocks, `tools`
    the tool descriptions, for a policy that renders them with its own chat template.

    Args:
        split: which tasks.
        seed: which tasks of the split, and their order until reset(seed=...) sets another order.
        config: step limit, three strikes, token budget of a result, codec, reward preset.
        reward: a spec of your own instead of the preset.
        count_tokens: tokens of a text by the policy's tokenizer; a word count by default.
        task_source: task index -> task, instead of the split's own tasks; to tamper, it must take
            every index below a million.
    """

    metadata: Mapping[str, Any] = {"render_modes": []}

    def __init__(
        self,
        split: Split | str = Split.TRAIN,
        seed: int = 0,
        config: EnvConfig | None = None,
        *,
        reward: RewardSpec | None = None,
        count_tokens: CountTokens = count_words,
        task_source: TaskSource | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.config = config or EnvConfig()
        self.reward_spec = reward or reward_of(self.config)
        self.codec = codec_of(self.config.codec, STANDARD_TOOLS)
        self.render_mode = render_mode
        self.action_space, self.observation_space = AnyText(), AnyText()
        choice("split", split, Split)
        self._split, self._seed, self._count_tokens = Split(split), seed, count_tokens
        self._task_source = task_source or self._own_task
        self._keeper: OutcomeKeeper | None = None
        self.messages: tuple[Message, ...] = ()

    def _own_task(self, index: int) -> Task:
        return make_task(self._split, self._seed, index)

    def _paid(self, index: int) -> Task:
        return with_payment(self._task_source(index), self.config.payment)

    # Gymnasium's contract

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts an episode: the task options["index"], or else the next one of a random order."""
        super().reset(seed=seed)
        index = _index(options or {})
        if index is None:
            if self._np_random is None:  # Gymnasium would take a seed from the operating system
                super().reset(seed=self._seed)
            index = int(self.np_random.integers(TASKS_PER_SEED))
        self.task = with_tools(self._paid(index), self.config.tools)
        self.answers = Answers(self.task, self.config, self._paid)
        self.desk = TicketDesk(self.task.tickets, self.task.tools)
        self.tools = tool_specs(self.task.tools)
        self.codec = codec_of(self.config.codec, self.task.tools)
        self._keeper = OutcomeKeeper(self.task, self.desk.store)
        self._score = self.breakdown = RewardBreakdown({})
        self.messages = opening_messages(self.task.request, self.config.max_turns)
        return self._observation(), self._info(None)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays one turn: parses, executes, answers. Whatever the text, no exception.

        Raises:
            EpisodeOver: the episode has stopped; call reset() first.
        """
        return self.play(action)

    def play(self, action: str, *, finished: bool = True) -> tuple[str, float, bool, bool, dict]:
        """`step`, with the policy's word on whether it ended the message itself.

        Args:
            action: the message.
            finished: False when a token limit cut it: then it is invalid, whatever it says.
        """
        if not isinstance(action, str):
            raise TypeError(f"action must be a str, got {type(action).__name__}: the policy's text")
        self._require_running()
        call = one_call(self.codec.parse(action)) if finished else _CUT
        invalid, data, ends = self._execute(call)
        done = None if invalid else call
        if ends:
            self._keeper.stopped(StopReason.REPLIED)
        elif reason := self._limit():
            self._keeper.stopped(reason)
        answer = tool_message(
            data, self.config.max_turns - self.outcome.turns,
            budget=self.config.result_budget, count_tokens=self._count_tokens,
        )  # fmt: skip
        self.messages += (Message("assistant", action), answer)
        stopped = self.outcome.stop is not None
        return self._observation(), self._pay(), stopped, False, self._info(invalid, done)

    def truncate(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Cuts the episode because its context is full: truncated, never a true end."""
        self._require_running()
        self._keeper.stopped(StopReason.CONTEXT_LIMIT)
        return self._observation(), self._pay(), False, True, self._info(None)

    # What a policy, a metric or a lesson may read

    @property
    def outcome(self) -> EpisodeOutcome:
        """What happened so far."""
        return self._keeper.facts

    @property
    def stop_reason(self) -> StopReason | None:
        return self._keeper.facts.stop if self._keeper else None

    # One turn

    def _require_running(self) -> None:
        if self._keeper is None:
            raise EpisodeOver("call reset() first: no episode was started")
        if self.outcome.stop is not None:
            raise EpisodeOver(f"call reset() first: the episode stopped with {self.stop_reason}")

    def _execute(self, call: Call | ParseFailure) -> tuple[ParseFailure | None, Mapping, bool]:
        """Runs a call, or says why there is none: (what was invalid, the answer, is it the end)."""
        if isinstance(call, ParseFailure):
            self._keeper.invalid_action()
            return call, self._refused(call), False
        changes = len(self.desk.store.changes)
        before = self._statuses()
        outcome = self.desk.call(call.tool, dict(call.arguments))
        if outcome.invalid:
            self._keeper.invalid_action()
            return outcome.invalid, self._refused(outcome.invalid, call.tool), False
        tool = self.desk.tools[call.tool]
        changed = self._statuses() != before and len(self.desk.store.changes) > changes
        self._keeper.valid_call(call, tool, outcome, changed)
        return None, self.answers.shown(outcome.data, self.desk.store), tool.ends_episode

    def _refused(self, failure: ParseFailure, tool: str = "") -> Mapping[str, Any]:
        tools = self.desk.tools
        meant = [tools[tool]] if tool in tools else tools.values()
        return invalid_answer(failure, self.config.feedback, meant)

    def _statuses(self) -> dict[str, Any]:
        return {name: ticket.get("status") for name, ticket in self.desk.store.tickets.items()}

    def _limit(self) -> StopReason | None:
        strikes = self.config.max_invalid
        if strikes and self.outcome.invalid_in_a_row >= strikes:
            return StopReason.THREE_STRIKES
        return StopReason.STEP_LIMIT if self.outcome.turns >= self.config.max_turns else None

    def _pay(self) -> float:
        score = self.reward_spec.score(self.outcome)
        self.breakdown = score.minus(self._score)
        self._score = score
        return self.breakdown.total

    @property
    def score(self) -> RewardBreakdown:
        """The episode's reward so far, by part."""
        return self._score

    def _observation(self) -> str:
        return self.messages[-1].content

    def _info(self, invalid: ParseFailure | None, call: Call | None = None) -> dict[str, Any]:
        return {
            "call": call,
            "invalid": invalid.kind.value if invalid else None,
            "stop_reason": self.outcome.stop.value if self.outcome.stop else None,
            "reward_parts": dict(self.breakdown.parts),
            "success": self.outcome.success,
            "winnable": self._keeper.winnable(self.config.max_turns - self.outcome.turns),
        }


def _index(options: Mapping[str, Any]) -> int | None:
    index = options.get("index")
    if options.keys() - {"index"} or not (index is None or (isinstance(index, int) and index >= 0)):
        raise ValueError(f'options must be {{"index": 0, 1, ...}}, got {dict(options)}')
    return index


_CUT = ParseFailure(InvalidKind.UNFINISHED, "the message was cut at the token limit")

gym.register(id="agentrl_lab/TicketDesk-v0", entry_point="agentrl_lab.world.env:TicketEnv")

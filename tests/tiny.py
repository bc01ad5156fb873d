"""Small things the learner's tests share: random policies, scripted policies, toy worlds.

Axes: B episode, T token position, R rows at work, Q new tokens of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from agentrl_lab.learner.policy import Policy
from agentrl_lab.learner.trajectories import Stage, Trajectory
from agentrl_lab.records import Message, StopReason, TaskKind
from agentrl_lab.world.outcomes import EpisodeOutcome

torch.set_num_threads(1)  # tests run side by side


# Random policies: a few thousand weights, spread wide enough that no two tokens are near a tie.


def llama(
    vocabulary: int, *, hidden: int = 32, layers: int = 2, heads: int = 4, kv_heads: int = 2,
    spread: float = 0.3, dropout: float = 0.0, seed: int = 0,
) -> LlamaForCausalLM:  # fmt: skip
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden,
            num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
            max_position_embeddings=2048, initializer_range=spread, attention_dropout=dropout,
            tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1,
        )
    )  # fmt: skip


def gpt2(
    vocabulary: int, *, hidden: int = 32, layers: int = 2, positions: int = 512,
    dropout: float = 0.0, seed: int = 0,
) -> GPT2LMHeadModel:  # fmt: skip
    """Learned absolute positions: a token scored at a wrong position changes a lot."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary, n_embd=hidden, n_layer=layers, n_head=4, n_positions=positions,
            initializer_range=0.3, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
            bos_token_id=None, eos_token_id=1,
        )
    )  # fmt: skip


class EndingPolicy(Policy):
    """A policy that likes to end its message: `push` is added to the logit of the end token."""

    def __init__(self, model: nn.Module, tokenizer: Any, push: float = 0.0) -> None:
        super().__init__(model, tokenizer)
        nn.init.normal_(self.value_head.weight, std=0.5)
        self.push = push

    def logits(self, hidden: Tensor) -> Tensor:
        push = hidden.new_zeros(self.model.config.vocab_size)
        push[self.tokenizer.end_id] = self.push
        return super().logits(hidden) + push


def in_own_precision(self: LlamaRMSNorm, hidden_states: Tensor) -> Tensor:
    """LlamaRMSNorm.forward without its detour through float32, for comparisons in float64."""
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * hidden_states * torch.rsqrt(variance + self.variance_epsilon)


# A policy that says what it is told. Its only memory is the key-value cache it is given.

Script = Callable[[list[int]], int]


class ScriptedPolicy(Policy):
    """Writes next_id(ids so far); the value of a state is the number of ids it has seen."""

    def __init__(self, tokenizer: Any, next_id: Script, vocabulary: int) -> None:
        nn.Module.__init__(self)
        self.model = SimpleNamespace(config=SimpleNamespace(num_hidden_layers=1))
        self.tokenizer, self.next_id, self.vocabulary = tokenizer, next_id, vocabulary
        self.modes: list[bool] = []
        self.eval()

    def hidden(
        self, token_BT: Tensor, *, position_BT: Tensor, mask: Tensor | None = None, cache: Any
    ) -> Tensor:
        self.modes.append(self.training or torch.is_grad_enabled())
        ids_RQ = token_BT.double()[:, None, :, None]
        seen = ids_RQ if cache is None else cache.update(ids_RQ, ids_RQ, 0)[0]
        history = seen[:, 0, :, 0].long().tolist()
        states = [
            [[self.next_id(row[: at + 1]), at + 1] for at in positions]
            for row, positions in zip(
                history, position_BT.expand(token_BT.shape).tolist(), strict=True
            )
        ]
        return torch.tensor(states, dtype=torch.float64)

    def logits(self, hidden: Tensor) -> Tensor:
        return 50.0 * nn.functional.one_hot(hidden[..., 0].long(), self.vocabulary).float()

    def value(self, hidden: Tensor) -> Tensor:
        return hidden[..., 1]


def script(plans: Mapping[tuple[int, ...], Sequence[Sequence[int]]], turn_mark: int) -> Script:
    """Plays planned actions: opening ids -> one list of ids a turn; `turn_mark` opens a turn."""

    def next_id(ids: list[int]) -> int:
        for opening, plan in plans.items():
            if tuple(ids[: len(opening)]) == opening:
                rest = ids[len(opening) :]
                turn = rest.count(turn_mark)
                written = rest[::-1].index(turn_mark) if turn else len(rest)
                if turn < len(plan) and written < len(plan[turn]):
                    return plan[turn][written]
        return 0

    return next_id


# A toy world whose texts are numbers: the ids themselves.


class NumberTokenizer:
    """Message contents are ids in decimal; 1 ends an action, 2 opens a turn."""

    end_id, turn_mark = 1, 2

    def opening(self, messages: Sequence[Message], tools: object) -> list[int]:
        return [int(word) for m in messages for word in m.content.split()] + [self.turn_mark]

    def after_action(self, answer: Message, *, ended: bool) -> list[int]:
        return ([] if ended else [self.end_id]) + self.opening([answer], None)

    def action_text(self, ids: Sequence[int]) -> str:
        return " ".join(str(token) for token in ids if token != self.end_id)


class ToyWorld:
    """The least an environment must offer a collector.

    Args:
        request: task index -> opening ids.
        answer: (task, turn) -> ids of the answer to that turn.
        pay: (task, turn, action text) -> reward of that turn.
        turns: turns of an episode, or task -> turns.
        pay_cut: reward of being cut off.
    """

    def __init__(
        self,
        request: Callable[[int], Sequence[int]] = lambda task: [3],
        answer: Callable[[int, int], Sequence[int]] = lambda task, turn: [4],
        pay: Callable[[int, int, str], float] = lambda task, turn, text: 0.0,
        turns: int | Callable[[int], int] = 1,
        pay_cut: float = 0.0,
    ) -> None:
        self._turns = turns if callable(turns) else lambda task: turns
        self.tools: list[Any] = []
        self.score = SimpleNamespace(parts={})
        self._request, self._answer, self._pay, self._pay_cut = request, answer, pay, pay_cut
        self.heard: list[tuple[str, bool]] = []

    def reset(self, *, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        self.task = options["index"]
        self.config = SimpleNamespace(max_turns=self._turns(self.task))
        self.outcome = EpisodeOutcome(TaskKind.STATUS_ONLY)
        self.messages = (_numbers("user", self._request(self.task)),)
        return self.messages[-1].content, {}

    def play(self, text: str, *, finished: bool) -> tuple[str, float, bool, bool, dict[str, Any]]:
        turn = len(self.heard)
        self.heard.append((text, finished))
        answer = _numbers("tool", self._answer(self.task, turn))
        self.messages += (Message("assistant", text), answer)
        stops = turn + 1 == self.config.max_turns
        self.outcome = EpisodeOutcome(
            TaskKind.STATUS_ONLY, turns=turn + 1, stop=StopReason.STEP_LIMIT if stops else None
        )
        invalid = None if finished else "unfinished"
        return answer.content, self._pay(self.task, turn, text), stops, False, {"invalid": invalid}

    def truncate(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.outcome = EpisodeOutcome(
            TaskKind.STATUS_ONLY, turns=len(self.heard), stop=StopReason.CONTEXT_LIMIT
        )
        return "", self._pay_cut, False, True, {"invalid": None}


def _numbers(role: str, ids: Sequence[int]) -> Message:
    return Message(role, " ".join(map(str, ids)))


# Trajectories by hand.


def trajectory(
    ids: Sequence[int],
    spans: Sequence[tuple[int, int]],
    rewards: Sequence[float] | None = None,
    *,
    logprobs: Sequence[float] | None = None,
    values: Sequence[float] | None = None,
    bootstrap: float = 0.0,
    index: int = 0,
    **outcome: Any,
) -> Trajectory:
    """Actions lie at `spans` of the ids; what is not given is 0."""
    count = sum(stop - start for start, stop in spans)
    rewards = [0.0] * len(spans) if rewards is None else rewards
    zeros = (0.0,) * count
    facts = {"kind": TaskKind.CLOSE_PAID, "turns": len(spans), "stop": StopReason.REPLIED}
    return Trajectory(
        index=index,
        ids=tuple(ids),
        stages=tuple(
            Stage(start, stop, reward, "")
            for (start, stop), reward in zip(spans, rewards, strict=True)
        ),
        logprobs=zeros if logprobs is None else tuple(logprobs),
        values=zeros if values is None else tuple(values),
        entropies=zeros,
        outcome=EpisodeOutcome(**{**facts, **outcome}),
        reward_parts={},
        bootstrap=bootstrap,
    )


def random_trajectories(
    vocabulary: int, number: int, *, prefix: int = 6, seed: int = 0
) -> list[Trajectory]:
    """Episodes of two to four turns of unequal length that share their first `prefix` ids."""
    rng = torch.Generator().manual_seed(seed)

    def some(count: int) -> list[int]:
        return torch.randint(2, vocabulary, (count,), generator=rng).tolist()

    def length(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=rng))

    shared, found = some(prefix), []
    for index in range(number):
        ids, spans = [*shared, *some(length(1, 5))], []
        for _ in range(length(2, 4)):
            start = len(ids)
            ids += some(length(1, 5))
            spans.append((start, len(ids)))
            ids += some(length(1, 6))
        ids = ids[: spans[-1][1]] if index % 2 else ids  # some end with their last action
        count = sum(stop - start for start, stop in spans)
        draws = torch.randn(3, count, generator=rng)
        rewards = torch.randn(len(spans), generator=rng).tolist()
        logprobs = (-draws[0].abs() - 1.0).tolist()
        found.append(
            trajectory(
                ids, spans, rewards, logprobs=logprobs, values=draws[1].tolist(), index=index
            )
        )
    return found

"""How the tiny policies under data/policies are made: tokenizer, model, demonstrations."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentrl_lab.config import EnvConfig
from agentrl_lab.learner.policy import Policy, load_policy
from agentrl_lab.learner.sft import demonstration_batches, train_sft
from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.records import Message, Split, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.observations import tool_message
from agentrl_lab.world.parser import CODECS
from agentrl_lab.world.tasks import make_task

ROLES = ("system", "tools", "user", "assistant", "tool")
SPECIAL = ("<|pad|>", "<|end|>", *(f"<|{role}|>" for role in ROLES))
VOCABULARY = 2048
MAX_TOKENS = 384

TEMPLATE = (
    "{%- for message in messages -%}"
    "<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{%- if message.role == 'system' and tools -%}<|tools|>"
    "{%- for tool in tools -%}{%- set f = tool.function -%}"
    "{{ f.name }}({{ f.parameters.properties | join(', ') }}): {{ f.description }}. "
    "{%- endfor -%}<|end|>{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""System prompt, tools, then the turns, always in this order (B2)."""

PIECES = r"\p{N}{1,3}| ?[\p{L}_]+| ?[^\s\p{L}\p{N}_]+|\s+"
"""What one token may at most hold: three digits, one word with its blank, one run of marks."""


@dataclass(frozen=True)
class Recipe:
    """How one tiny policy is made."""

    mixture: habits.Mixture
    steps: int
    learning_rate: float
    start: Recipe | str | None = None
    """What to go on from: a recipe, a shipped policy, or None for fresh weights."""
    env: EnvConfig = field(default_factory=EnvConfig)
    """The desk of the demonstrations."""
    seed: int = 7
    batch: int = 32

    @property
    def total_steps(self) -> int:
        """Steps of this recipe and of those it goes on from."""
        earlier = self.start.total_steps if isinstance(self.start, Recipe) else 0
        return earlier + self.steps


DEMONSTRATED = {
    TaskKind.CLOSE_PAID: 0.25,
    TaskKind.CLOSE_UNPAID: 0.13,
    TaskKind.ALREADY_CLOSED: 0.12,
    TaskKind.NOT_FOUND: 0.12,
    TaskKind.STATUS_ONLY: 0.38,
}
"""Shares of task kinds in demonstrations: to name a status takes more examples than the rest."""


def _mixture(looks_and_claims: habits.Habit) -> habits.Mixture:
    return habits.Mixture(
        {
            habits.careful: 0.20,
            looks_and_claims: 0.50,
            habits.blind: 0.15,
            habits.guessing: 0.05,
            habits.hasty: 0.03,
            habits.stubborn: 0.02,
            habits.slipping: 0.03,
            habits.broken: 0.02,
        }
    )


LANGUAGE = Recipe(_mixture(habits.fluent), steps=800, learning_rate=3e-3)
"""From nothing to fluent: copying a ticket id appears after some 300 steps, statuses later."""

HABITS = _mixture(habits.boastful)


def _elsewhere(mixture: habits.Mixture, steps: int, **settings: str) -> Recipe:
    """Habits shown at another desk."""
    env = EnvConfig(**settings)
    return Recipe(mixture, steps=steps, learning_rate=1e-3, start="tiny-base", env=env, seed=9)


RECIPES = {
    "tiny-base": Recipe(HABITS, steps=150, learning_rate=1e-3, start=LANGUAGE, seed=9),
    "tiny-json": _elsewhere(HABITS, 250, codec="json"),
    "tiny-id": _elsewhere(HABITS, 250, codec="id"),
    "tiny-amounts": _elsewhere(habits.MIXED, 150, payment="amounts"),
    "tiny-leaky": _elsewhere(habits.MIXED, 150, payment="amounts", debug_field="half"),
    "tiny-raw": Recipe(
        habits.Mixture(
            {
                habits.careful: 0.10,
                habits.boastful: 0.05,
                habits.guessing: 0.05,
                habits.slipping: 0.05,
                habits.broken: 0.75,
            }
        ),
        steps=120,
        learning_rate=1e-3,
        start="tiny-base",
        seed=8,
    ),
}


def warm_start(recipe: Recipe) -> tuple[Policy, Iterator[float]]:
    """A policy and the losses of its training; it is finished when they are read to the end."""
    policy, earlier = _start(recipe)
    env = TicketEnv(
        config=recipe.env,
        count_tokens=policy.tokenizer.count,
        task_source=lambda index: make_task(Split.TRAIN, recipe.seed, index, DEMONSTRATED),
    )
    batches = demonstration_batches(
        policy.tokenizer, env, lambda e, rng: recipe.mixture.plan(e.task, e.codec, rng),
        seed=recipe.seed, batch=recipe.batch, max_tokens=MAX_TOKENS,
    )  # fmt: skip
    losses = train_sft(policy, batches, steps=recipe.steps, learning_rate=recipe.learning_rate)
    return policy, itertools.chain(earlier, losses)


def _start(recipe: Recipe) -> tuple[Policy, Iterator[float]]:
    match recipe.start:
        case Recipe():
            return warm_start(recipe.start)
        case str():
            return load_policy(recipe.start), iter(())
        case None:
            torch.manual_seed(recipe.seed)
            return Policy(make_model(), make_tokenizer()), iter(())


def make_model() -> LlamaForCausalLM:
    """A Llama of about a million parameters with fresh weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=128, intermediate_size=344, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048,
            initializer_range=0.06, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None,
            eos_token_id=1, attention_dropout=0.0,
        )
    )  # fmt: skip


def make_tokenizer() -> ChatTokenizer:
    """A byte-level BPE over the desk's own language; three digits always make one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>",
        additional_special_tokens=list(SPECIAL[2:]), clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = TEMPLATE
    return ChatTokenizer(fast)


def _corpus() -> Iterator[str]:
    """All three-digit groups, many times, then the text of whole episodes."""
    digits = [f"{number:03d}" for number in range(1000)]
    yield from itertools.repeat(" ".join(digits), 200)
    for index in range(1500):
        task = make_task(Split.TRAIN, 0, index)
        env = TicketEnv(task_source=lambda _, task=task: task)
        env.reset(options={"index": index})
        rng = random.Random(index)
        for name in CODECS:
            yield from habits.careful(task, CODECS[name], rng)
        yield from habits.broken(task, env.codec, rng)[:2]
        yield from (message.content for message in env.messages)
        for tool in task.tools:
            yield f"{tool.name}({', '.join(tool.schema['properties'])}): {tool.description}. "
        yield _all_fields(task.tickets)


def _all_fields(tickets: dict) -> str:
    answers: list[Message] = [
        tool_message(ticket, 5, budget=10_000, count_tokens=len) for ticket in tickets.values()
    ]
    return "\n".join(answer.content for answer in answers)

"""Messages -> token ids. The only module that knows the chat template.

The policy's own tokens are never decoded and encoded again: a prompt is encoded once, the sampled
ids follow as they are, and what comes after them is encoded on its own (laws 1, 5, 6).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from agentrl_lab.records import Message

_SENTINEL, _SLOT = "ACTIONTEXT", "LASTMESSAGE"
_MOST_FRAMES = 256


class ChatTokenizer:
    """A tokenizer with a chat template, as the rollout needs it.

    Args:
        tokenizer: with a chat template, and an end token that closes a message.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template or tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer needs a chat template and an eos token that ends turns")
        self.tokenizer = tokenizer
        self.end_id: int = tokenizer.eos_token_id
        self._frames: dict[tuple[Any, ...], list[str]] = {}
        added = tokenizer.get_added_vocab()
        # Runs of blanks, which some tokenizers add, are no role marks and cannot be broken by one.
        markers = (marker for marker in added if marker not in _broken(marker))
        self._markers = sorted(markers, key=len, reverse=True)

    def count(self, text: str) -> int:
        """Tokens of a plain text, role markers in it neutralised."""
        return len(self._encode(self.neutral(text)))

    def neutral(self, text: str) -> str:
        """The text with every role marker broken by a blank, so that it stays text."""
        while any(marker in text for marker in self._markers):
            for marker in self._markers:
                text = text.replace(marker, _broken(marker))
        return text

    def opening(self, messages: Sequence[Message], tools: list[dict[str, Any]]) -> list[int]:
        """Ids of the prompt up to the place where the policy starts to write."""
        return self._encode(self._render(messages, tools))

    def after_action(self, answer: Message, *, ended: bool) -> list[int]:
        """Ids between an action and the next: the end mark if the policy left it out, the answer.

        Args:
            answer: the tool message.
            ended: the sampled ids close with the end token already.
        """
        turns = (Message("user", ""), Message("assistant", _SENTINEL), answer)
        suffix = self._render(turns, None).split(_SENTINEL, 1)[1]
        end = self.tokenizer.eos_token
        if not suffix.startswith(end):
            raise ValueError(f"the chat template does not close a message with {end!r}")
        return self._encode(suffix[len(end) :] if ended else suffix)

    def action_text(self, ids: Sequence[int]) -> str:
        """The text of an action, without the end token and without any other special token."""
        return self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def encode_action(self, text: str) -> list[int]:
        """Ids of a written action, end token included: for demonstrations and a human's play."""
        return [*self._encode(self.neutral(text)), self.end_id]

    def _encode(self, text: str) -> list[int]:
        # The library's own encoder: the wrapper around it takes several times as long.
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    def _render(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None) -> str:
        """The template's text. What stands around the last message is rendered once and kept."""
        *before, last = messages
        key = (*before, last.role, json.dumps(tools))
        if key not in self._frames:
            if len(self._frames) == _MOST_FRAMES:
                self._frames.clear()
            text = self._apply([*before, Message(last.role, _SLOT)], tools)
            self._frames[key] = text.split(_SLOT)
        return self.neutral(last.content).join(self._frames[key])

    def _apply(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None) -> str:
        plain = [{"role": m.role, "content": self.neutral(m.content)} for m in messages]
        return self.tokenizer.apply_chat_template(
            plain, tools=tools, tokenize=False, add_generation_prompt=True
        )


def _broken(marker: str) -> str:
    return f"{marker[0]} {marker[1:]}"


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Length of the longest beginning that all rows share."""
    first, last = min(rows), max(rows)
    for position, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return position
    return min(len(first), len(last))

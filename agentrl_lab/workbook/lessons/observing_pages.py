"""Pictures and pages of notebook 01: a prompt in blocks, what a cut leaves, tokens in bars.

Draws what it is given; plays nothing and measures nothing.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from agentrl_lab.learner.tokenization import ChatTokenizer
from agentrl_lab.workbook.lessons.cutting import LOST, NAME, PART, PIECE, WHOLE, survival
from agentrl_lab.workbook.plots import BLUE, GREEN, GREY, RED, Page, Picture, tidy
from agentrl_lab.world.observations import CountTokens

PURPLE = "#7B3F8C"
WIDE_ENOUGH = 10
"""Tokens of a block whose word fits into its bar."""
BLOCKS = {
    "system": ("rules", GREY), "tools": ("tools", PURPLE), "user": ("request", BLUE),
    "assistant": ("agent", RED), "tool": ("desk", GREEN),
}  # fmt: skip
"""Role in the chat template -> the word shown, and the colour of the block."""
MARKS = {WHOLE: "●", PART: "◐", NAME: "○", PIECE: "◌", LOST: "–"}
MONO = "font-family:monospace;white-space:pre-wrap;overflow-wrap:anywhere"


@dataclass(frozen=True, slots=True)
class Block:
    """What the model takes for one message: everything from one role marker to the next."""

    role: str
    text: str
    tokens: int
    """Role marker and end mark included."""


def blocks_of(tokenizer: ChatTokenizer, ids: Sequence[int]) -> list[Block]:
    """Token ids read back as a model reads them: a role marker starts a block, whoever wrote it."""
    names = tokenizer.tokenizer.convert_ids_to_tokens(list(ids))
    roles = {f"<|{role}|>": role for role in BLOCKS}
    starts = [at for at, name in enumerate(names) if name in roles]
    return [
        Block(roles[names[at]], tokenizer.action_text(ids[at:end]), end - at)
        for at, end in zip(starts, [*starts[1:], len(ids)], strict=True)
    ]


def blocks_page(blocks: Sequence[Block]) -> Page:
    """Blocks as coloured boxes, with who speaks and how many tokens it takes."""
    boxes = []
    for block in blocks:
        word, colour = BLOCKS[block.role]
        text = html.escape(block.text) or "<i>here the policy writes</i>"
        boxes.append(
            f'<div style="border-left:6px solid {colour};padding:2px 8px;margin:4px 0">'
            f"<b>{word}</b> · {block.tokens} token{'s' * (block.tokens > 1)}<br>"
            f'<span style="{MONO}">{text}</span></div>'
        )
    parts = ", ".join(f"{BLOCKS[b.role][0]} {b.tokens}" for b in blocks)
    sentence = f"{len(blocks)} blocks, {sum(b.tokens for b in blocks)} tokens: {parts}."
    return Page(f"{''.join(boxes)}<p>{html.escape(sentence)}</p>", sentence)


def token_bars(prompts: Mapping[str, Sequence[Block]]) -> Picture:
    """One bar per prompt, made of its blocks in order; who speaks and its tokens stand in each."""
    figure = Figure(figsize=(9.0, 0.8 + 0.6 * len(prompts)), layout="constrained")
    axes = figure.subplots()
    for row, blocks in enumerate(prompts.values()):
        left = 0
        for block in blocks:
            word, colour = BLOCKS[block.role]
            axes.barh(row, block.tokens, left=left, color=colour, edgecolor="white")
            if block.tokens >= WIDE_ENOUGH:
                axes.text(left + block.tokens / 2, row, f"{word}\n{block.tokens}", ha="center",
                          va="center", color="white", fontsize=9, fontweight="bold")  # fmt: skip
            left += block.tokens
    axes.set_yticks(range(len(prompts)), list(prompts))
    axes.invert_yaxis()
    axes.set_xlabel("tokens")
    tidy(axes, grid=None)
    totals = "; ".join(f"{n} {sum(b.tokens for b in blocks)}" for n, blocks in prompts.items())
    return Picture(figure, f"Tokens that the policy reads before it writes: {totals}.")


def survival_page(answer: Mapping[str, Any], texts: Mapping[str, str], count: CountTokens) -> Page:
    """A table of fields by ways of cutting, each cut text below it."""
    states = {way: survival(answer, text) for way, text in texts.items()}
    cell = '<td style="text-align:left;padding:1px 10px">'
    head = "".join(
        f"{cell}<b>{way}</b><br>{count(text)} tokens</td>" for way, text in texts.items()
    )
    rows = "".join(
        f"<tr>{cell}<code>{html.escape(name)}</code></td>"
        + "".join(f"{cell}{MARKS[s[name]]} {s[name]}</td>" for s in states.values()) + "</tr>"
        for name in answer
    )  # fmt: skip
    shown = "".join(
        f'<p><b>{way}</b><br><span style="{MONO}">{html.escape(text)}</span></p>'
        for way, text in texts.items()
    )
    kept = "; ".join(f"{way} {_kept(fields)}" for way, fields in states.items())
    sentence = f"Of {len(answer)} fields, whole values survive: {kept}."
    return Page(f"<table><tr>{cell}field</td>{head}</tr>{rows}</table>{shown}", sentence)


def _kept(fields: Mapping[str, str]) -> str:
    whole = [name for name, state in fields.items() if state == WHOLE]
    return f"{len(whole)} ({', '.join(whole) or 'none'})"

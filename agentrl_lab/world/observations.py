"""What the policy sees: the opening messages and each tool result, cut to a token budget (B1-B3).

Knows the desk's answers and how to count tokens (a function that is passed in). Knows no tokenizer.
Every result is cut when it arrives and never again, so that an earlier prompt stays a prefix of
every later one; when the context is full the episode is truncated instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentrl_lab.records import Message, ParseFailure
from agentrl_lab.world.desk import Tool, copied

CountTokens = Callable[[str], int]
Field = tuple[str, Any]

ELLIPSIS = "…"
SHORT = 80
"""Characters of a value that is not worth cutting."""
SYSTEM_PROMPT = (
    "You work at a ticket desk. Look before you act. Close a ticket only if that is asked for, "
    "it is not closed yet and it is paid. Then reply with what is true."
)
KEEP_FIRST = (
    "error", "hint", "call_it", "result", "status", "due", "paid", "expected_action"
)  # fmt: skip
"""Fields whose values the summary keeps whole for as long as anything fits (B3)."""


def count_words(text: str) -> int:
    """A rough token count for use without a tokenizer: words, numbers and marks."""
    return len(re.findall(r"[A-Za-z_]+|\d{1,3}|[^\sA-Za-z_\d]", text))


def opening_messages(request: str, max_turns: int) -> tuple[Message, ...]:
    """System prompt and request; the tools go between them, which is the template's work (B2)."""
    return (
        Message("system", f"{SYSTEM_PROMPT}\nOne tool call a message. steps left: {max_turns}"),
        Message("user", request),
    )


def tool_message(
    data: Mapping[str, Any], steps_left: int, *, budget: int, count_tokens: CountTokens
) -> Message:
    """The answer of the desk as the policy sees it, with the steps it has left."""
    summary = summarize(data, budget=budget, count_tokens=count_tokens)
    return Message("tool", f"{summary}\nsteps left: {steps_left}")


def invalid_answer(
    failure: ParseFailure, feedback: str, tools: Iterable[Tool]
) -> dict[str, Any]:
    """What an invalid action is answered (C3): from nothing at all to how a tool is called.

    Args:
        failure: what was wrong.
        feedback: silent (nothing), code, hint (and the code), or schema (and the code).
        tools: those that may have been meant.
    """
    if feedback == "silent":
        return {}
    answer = {"error": failure.kind.value}
    match feedback:
        case "hint":
            answer["hint"] = failure.hint
        case "schema":
            answer["call_it"] = "; ".join(map(_signature, tools))
    return answer


def _signature(tool: Tool) -> str:
    """As the tools block has it: its name and what its arguments are called."""
    return f"{tool.name}({', '.join(tool.schema.get('properties', ()))})"


def tool_specs(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tool descriptions in the form chat templates expect, in one fixed order."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name, "description": tool.description,
                "parameters": copied(dict(tool.schema)),
            },
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]  # fmt: skip


def summarize(data: Mapping[str, Any], *, budget: int, count_tokens: CountTokens) -> str:
    """The answer within `budget` tokens: field names, status values and errors survive (B3).

    Long values are cut first, all to the same length, as long as the budget allows; then the least
    important fields give up their values and keep their names, under "more"; then the names go,
    before any value of KEEP_FIRST. What comes out fits, and a second pass leaves it as it is.

    Args:
        data: the raw answer; never changed.
        budget: tokens, the marks of shortening included.
        count_tokens: tokens of a text, by the policy's own tokenizer.

    Source: chapter B3; cut by field, since a cut at one end hides whatever stands there.
    """

    def fits(text: str) -> bool:
        return count_tokens(text) <= budget

    fields = _by_importance(data)
    whole, short = _render(fields), _render(_shorten(fields, SHORT))
    # To count a long text takes longer than all the rest.
    if (len(whole) <= 2 * len(short) or fits(short)) and fits(whole):
        return whole
    cut = _longest(lambda limit: _render(_shorten(fields, limit)), SHORT, len(whole), fits)
    if cut is not None:
        return cut

    def keep(number: int) -> str:
        return _render([*_shorten(fields[:number], SHORT), _names_of(fields[number:])])

    vital = sum(name in ("ticket_id", *KEEP_FIRST) for name, _ in fields)
    most = len(fields) - 1
    kept = _longest(keep, max(1, min(vital, most)), most, fits) if most > 0 else None
    return kept or _cut_hard(fields, fits) or _most_vital(fields, fits) or "{}"


def _most_vital(fields: Sequence[Field], fits: Callable[[str], bool]) -> str | None:
    """Where not even all names fit: as many fields as do, the first one cut if it must be."""
    some = _longest(lambda number: _render(_shorten(fields[:number], SHORT)), 1, len(fields), fits)
    return some or _cut_hard(fields[:1], fits)


def _cut_hard(fields: Iterable[Field], fits: Callable[[str], bool]) -> str | None:
    """All fields cut to the same few characters, in the order their short values then have."""
    return _longest(
        lambda limit: _render(_by_importance(dict(_shorten(fields, limit)))), 0, SHORT, fits
    )


def _longest(
    render: Callable[[int], str], low: int, high: int, fits: Callable[[str], bool]
) -> str | None:
    """The text of the largest limit that fits, None when not even the smallest does."""
    if not fits(best := render(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(text := render(middle)):
            low, best = middle, text
        else:
            high = middle - 1
    return best


def _by_importance(data: Mapping[str, Any]) -> list[Field]:
    """Fields in one order, whatever the order of the answer: id, errors, state, short, long."""

    def rank(item: Field) -> tuple[Any, ...]:
        name, value = item
        first = KEEP_FIRST.index(name) if name in KEEP_FIRST else len(KEEP_FIRST)
        return (name == "more", name != "ticket_id", first, len(_text(value)) > SHORT, name)

    return sorted(((str(name), value) for name, value in data.items()), key=rank)


def _shorten(fields: Iterable[Field], limit: int) -> list[Field]:
    """Fields whose text is longer than `limit` characters, cut to that length."""
    return [
        (name, value if len(_text(value)) <= limit else _text(value)[:limit] + ELLIPSIS)
        for name, value in fields
    ]


def _names_of(fields: Iterable[Field]) -> Field:
    """The fields whose values had to go, by name."""
    names = [_text(value) if name == "more" else name for name, value in fields]
    return ("more", " ".join(names))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _dump(value)


def _render(fields: Iterable[Field]) -> str:
    return _dump(dict(fields))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)

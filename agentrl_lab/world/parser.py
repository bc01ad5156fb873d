r"""Turns text into tool calls and back: syntax only.

Knows nothing of tokens, tools that exist, schemas or rewards. Two codecs of one idea:

    function    <function=query_ticket>{"ticket_id": "S1001"}</function>
    json        {"tool": "query_ticket", "parameters": {"ticket_id": "S1001"}}

What the policy gets wrong never raises: it is a `ParseFailure`, whose hint goes back to it. Rules:

- Prose around a call is allowed and comes back as `Parsed.text`. Code fences, think blocks and
  arrays are prose too, so a call inside one *is* a call.
- What only looks like a call is prose: `<function=NAME>` without `{` after it, `{"tool": NAME}`
  with a bare NAME, an object without the key "tool" (with all that it holds), broken JSON whose
  first key is another. But if the text ends after the opener of a call, or before the call is
  closed, the call is UNFINISHED.
- Reading stops at the first broken call; what follows is not read. So the work stays linear.
- Nothing is repaired. BAD_JSON is: a trailing comma, a comment, a single quote, a raw control
  character in a string, a number that no finite float holds (NaN, 1e400), a key written twice,
  a lone surrogate, arguments that are no object (a string that holds one), more than MAX_DEPTH
  levels, a key beside "tool" and "parameters", text between the object and `</function>`.
- Full-width punctuation as structure is FULL_WIDTH; inside a string it is text, and stays.
- No arguments (`<function=x></function>`, `null`, no "parameters") are `{}`: the desk says what
  is missing. Types are kept: 1001, 1001.0 and "1001" differ.

`parse(render(call))` gives the call back. What `render` writes always encodes as UTF-8: a lone
surrogate becomes its escape `\ud800`, which `parse` then refuses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl_lab.records import Call, InvalidKind, ParseFailure

MAX_CHARACTERS = 20_000  # A longer message is TOO_LONG and not read at all.
MAX_DEPTH = 20  # Levels in the arguments, far below where `json` overflows the stack.

_NAME = re.compile("[^<>\\s\ud800-\udfff]+")
_TAG_OPENER = re.compile(r"<function=([^<>\s]*)(?:>\s*|\s*\Z)")
_TAG = re.compile(r"<function=|</function>")
_OTHER_JSON = re.compile(r'".*"|\[.*\]|-?\d[\d.]*|true|false', re.DOTALL)
_BRACE, _QUOTE = "{\uff5b", '"\u201c\u201d\u2018\u2019\uff02'  # plain and full-width
_JSON_OPENER = re.compile(rf"[{_BRACE}](?=\s*[{_QUOTE}])")
_MEANT_AS_CALL = re.compile(  # An object that begins like this: its faults are not prose.
    rf"[{_BRACE}]\s*[{_QUOTE}](?:tool|parameters)[{_QUOTE}]"
    rf"\s*(?:\Z|[:\uff1a]\s*(?:\Z|[{_BRACE}{_QUOTE}]))"
)
_FULL_WIDTH = {*_BRACE, *_QUOTE, *"\uff5d\uff3b\uff3d\uff1a\uff0c\uff1b\u3001\u3000"} - {*'{"'}
_MARK = re.compile(r'[{}\[\]"\uff5b]|\\.', re.DOTALL)
_STEP = {"{": 1, "[": 1, "}": -1, "]": -1}
_HALF_WORD = re.compile(r"[\w.+-]{0,9}\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_CLOSED = ("The call is not closed.", InvalidKind.UNFINISHED)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one message holds: the calls in order, what is broken, the prose outside the calls."""

    calls: tuple[Call, ...]
    failure: ParseFailure | None
    text: str


class Codec(Protocol):
    """One way to write a call as text. `name` is the value of the setting `codec`."""

    name: str

    def parse(self, text: str) -> Parsed:
        """Every call in the text, in order. Never raises."""

    def render(self, call: Call) -> str:
        """The call as text."""


def one_call(parsed: Parsed) -> Call | ParseFailure:
    """The message's only call, or why there is none to execute. A broken call counts too."""
    if len(parsed.calls) + (parsed.failure is not None) > 1:
        hint = "More than one call in the message: none was executed."
        return ParseFailure(InvalidKind.SEVERAL_CALLS, hint)
    missing = ParseFailure(InvalidKind.NO_CALL, "No tool call in the message: write one.")
    return parsed.failure or (parsed.calls[0] if parsed.calls else missing)


@dataclass(frozen=True, slots=True)
class FunctionCodec:
    """`<function=NAME>{JSON}</function>`: the name in a tag, the arguments as JSON."""

    name: str = "function"

    def parse(self, text: str) -> Parsed:
        """Every call in the text, in order."""
        return _parse(text, _TAG_OPENER, _read_tag)

    def render(self, call: Call) -> str:
        """The call as text. Raises ValueError if the tool is not one word without < or >."""
        return f"<function={_call(call.tool).tool}>{dump(dict(call.arguments))}</function>"


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """`{"tool": NAME, "parameters": {JSON}}`: the whole call is one JSON object."""

    name: str = "json"

    def parse(self, text: str) -> Parsed:
        """Every call in the text, in order."""
        return _parse(text, _JSON_OPENER, _read_object)

    def render(self, call: Call) -> str:
        """The call as text. Raises ValueError if the tool is not one word without < or >."""
        return dump({"tool": _call(call.tool).tool, "parameters": dict(call.arguments)})


CODECS: Mapping[str, Codec] = {"function": FunctionCodec(), "json": JsonCodec()}


class _Refused(ValueError):
    """Travels from inside a decode up to `_parse`, never further."""

    def __init__(self, hint: str, kind: InvalidKind = InvalidKind.BAD_JSON) -> None:
        super().__init__(hint)
        self.failure = ParseFailure(kind, hint)


def _parse(text: str, openers: re.Pattern[str], read: Callable[..., Any]) -> Parsed:
    """From opener to opener. `read` gives the call (None: prose) and where to read on."""
    if len(text) > MAX_CHARACTERS:
        hint = f"The message is longer than {MAX_CHARACTERS} characters."
        return Parsed((), ParseFailure(InvalidKind.TOO_LONG, hint), "")
    calls, prose, position = [], "", 0
    while opener := openers.search(text, position):
        try:
            call, end = read(text, opener)
        except _Refused as refused:
            prose += text[position : opener.start()]
            return Parsed(tuple(calls), refused.failure, prose)
        prose += text[position : end if call is None else opener.start()]
        calls += [] if call is None else [call]
        position = end
    return Parsed(tuple(calls), None, prose + text[position:])


def _read_tag(text: str, opener: re.Match[str]) -> tuple[Call | None, int]:
    """One `<function=NAME>`: an object, then nothing but space, then the tag that closes it."""
    start = opener.end()
    has_object = start < len(text) and text[start] in _BRACE
    arguments, end = _decode(text, start, MAX_DEPTH) if has_object else (None, start)
    tag = _TAG.search(text, end)
    if tag is None or tag[0] != "</function>":
        if has_object or start == len(text):
            raise _Refused(*_NOT_CLOSED)
        return None, start
    rest = text[end : tag.start()].strip()
    if has_object and rest:
        raise _Refused("There is text between the arguments and </function>.")
    if rest not in ("", "null"):
        if not _OTHER_JSON.fullmatch(rest):
            return None, start
        arguments = rest
    return _call(opener[1], arguments), tag.end()


def _read_object(text: str, opener: re.Match[str]) -> tuple[Call | None, int]:
    """One JSON object: a call if it has the key "tool" or is meant as a call."""
    start = opener.start()
    try:
        found, end = _decode(text, start, MAX_DEPTH + 1)
    except _Refused:
        if _MEANT_AS_CALL.match(text, start):
            raise
        return None, start + 1
    if "tool" not in found:
        return None, end
    if extra := sorted(found.keys() - {"tool", "parameters"}):
        raise _Refused(f"A call has the keys tool and parameters, not {extra[0][:20]!r}.")
    return _call(found["tool"], found.get("parameters")), end


def read_list(text: str, start: int) -> tuple[list[Any], int] | ParseFailure:
    """The strict JSON list that begins at `start` and where it ends, or what is wrong with it."""
    try:
        return _decode(text, start, MAX_DEPTH + 1)
    except _Refused as refused:
        return refused.failure


def _call(tool: Any, arguments: Any = None) -> Call:
    if not isinstance(tool, str) or not _NAME.fullmatch(tool):
        raise _Refused(f"The tool must be one word without < or >, not {str(tool)[:20]!r}.")
    if arguments is not None and not isinstance(arguments, dict):
        raise _Refused("The parameters must be an object.")
    return Call(tool, arguments or {})


def _decode(text: str, start: int, max_depth: int) -> tuple[Any, int]:
    """The strict JSON value at `start` and where it ends: a real decode, so strings are safe."""
    piece = text[start : _extent(text, start, max_depth)]
    try:
        found, length = _DECODER.raw_decode(piece)
    except json.JSONDecodeError as error:
        raise _diagnosis(error) from None
    if _SURROGATE.search(json.dumps(found, ensure_ascii=False)):
        raise _Refused("A string holds a lone surrogate, which is not a character.")
    return found, start + length


def _extent(text: str, start: int, max_depth: int) -> int:
    """Where the bracket at `start` closes or JSON must end. `json` itself overflows on depth."""
    depth, in_string = 0, False
    for mark in _MARK.finditer(text, start):
        in_string ^= mark[0] == '"'
        depth += 0 if in_string else _STEP.get(mark[0], 0)
        if depth > max_depth:
            raise _Refused("The arguments are nested too deep.")
        if depth <= 0 or (mark[0][0] == "\\" and not in_string):
            return mark.end()
    return len(text)


def _diagnosis(error: json.JSONDecodeError) -> _Refused:
    """Why strict JSON stopped. Positions stay out of hints: they differ between Pythons."""
    rest = error.doc[error.pos :]
    if rest[:1] in _FULL_WIDTH:
        hint = "The JSON uses full-width punctuation: write plain quotes, colons, commas, braces."
        return _Refused(hint, InvalidKind.FULL_WIDTH)
    if error.msg.startswith("Unterminated string") or _HALF_WORD.fullmatch(rest):
        return _Refused(*_NOT_CLOSED)
    if error.msg.startswith("Invalid control character"):
        return _Refused("A string holds a raw control character: write \\n or \\t instead.")
    return _Refused("The call is not strict JSON.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Refused(f"The key {key[:20]!r} is written twice.")
        found[key] = value
    return found


def _finite(written: str, convert: type[float] = float) -> float:
    if not math.isfinite(float(written)):
        raise _Refused(f"The number {written[:20]!r} is not finite.")
    return convert(written)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_constant=_finite,
    parse_float=_finite,
    parse_int=lambda digits: _finite(digits, int),
)


def dump(value: Any) -> str:
    """The value as JSON that always encodes as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

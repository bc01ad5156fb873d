"""The encoding that C1 warns of: a tool is a number, its arguments are a list in a fixed order.

    id    1 ["S1001", "closed"]

The number is the tool's place in the list that the prompt shows, from 0; the values stand in the
order of the tool's schema. So a message means nothing without the tools of its episode, and a new
tool, or an argument that moves, gives the same message another meaning. Two kinds of numbers are
used in practice; the other, given out once for ever, cannot say a new tool at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentrl_lab.config import nearest
from agentrl_lab.records import Call, InvalidKind, ParseFailure
from agentrl_lab.world.desk import Tool
from agentrl_lab.world.parser import CODECS, MAX_CHARACTERS, Codec, Parsed, one_call

JSON = CODECS["json"]

_MESSAGE = re.compile(r"\s*(\d{1,3})\s*(\[.*)", re.DOTALL)


@dataclass(frozen=True)
class IdCodec:
    """`NUMBER [VALUES]`, read and written with the tools of one episode."""

    tools: tuple[Tool, ...]
    """In the order of the prompt."""
    name: str = "id"

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> IdCodec:
        """The codec of an episode that offers these tools."""
        return cls(tuple(sorted(tools, key=lambda tool: tool.name)))

    def parse(self, text: str) -> Parsed:
        """The call that the whole message is, by names; prose beside it is not allowed."""
        if len(text) > MAX_CHARACTERS:
            return JSON.parse(text)  # which does not read it either
        if not (found := _MESSAGE.fullmatch(text)):
            return Parsed((), None, text)
        # As one argument of a call in JSON the list is read as strictly as any other.
        read = one_call(JSON.parse(f'{{"tool": "id", "parameters": {{"values": {found[2]}}}}}'))
        call = self._named(int(found[1]), read) if isinstance(read, Call) else read
        return Parsed((), call, "") if isinstance(call, ParseFailure) else Parsed((call,), None, "")

    def _named(self, number: int, read: Call) -> Call | ParseFailure:
        if read.arguments.keys() != {"values"}:
            return ParseFailure(InvalidKind.BAD_JSON, "A call is a number and one list.")
        if number >= len(self.tools):
            hint = f"no tool has the number {number}; the last one is {len(self.tools) - 1}"
            return ParseFailure(InvalidKind.UNKNOWN_TOOL, hint)
        names, values = _places(self.tools[number]), read.arguments["values"]
        if len(values) > len(names):
            hint = f"tool {number} takes {len(names)} arguments, not {len(values)}"
            return ParseFailure(InvalidKind.BAD_ARGUMENTS, hint)
        return Call(self.tools[number].name, dict(zip(names, values, strict=False)))

    def render(self, call: Call) -> str:
        """The call as text.

        Raises:
            ValueError: the episode has no such tool, or an argument before the last one is missing.
        """
        names = [tool.name for tool in self.tools]
        if call.tool not in names:
            raise ValueError(f"no tool is called {call.tool!r}: {nearest(call.tool, names)}")
        number = names.index(call.tool)
        values = [call.arguments[n] for n in _places(self.tools[number]) if n in call.arguments]
        text = f"{number} {json.dumps(values, ensure_ascii=False)}"
        if one_call(self.parse(text)) != call:
            raise ValueError(f"{call.tool} {dict(call.arguments)} cannot be written by places")
        return text


def _places(tool: Tool) -> list[str]:
    return list(tool.schema.get("properties", ()))


def codec_of(name: str, tools: Iterable[Tool]) -> Codec:
    """The codec of that name for an episode that offers these tools."""
    return IdCodec.of(tools) if name == "id" else CODECS[name]

"""The encoding that C1 warns of: a tool is a number, its arguments are a list in a fixed order.

    id    1 ["S1001", "closed"]

The number is the tool's place in the list that the prompt shows, from 0; the values stand in the
order of the tool's schema. So a message means nothing without the tools of its episode, and a new
tool, or an argument that moves, gives the same message another meaning. (Numbers that are given
out once for ever would not move; they cannot say a new tool at all.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentrl_lab.config import choice, nearest
from agentrl_lab.records import Call, InvalidKind, ParseFailure
from agentrl_lab.world.desk import Tool
from agentrl_lab.world.parser import CODECS, MAX_CHARACTERS, Codec, Parsed, dump, read_list

_OPENER = re.compile(r"\s*(0|[1-9][0-9]{0,2})\s*(?=\[)", re.ASCII)


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
            return CODECS["json"].parse(text)  # which does not read it either
        if not (opener := _OPENER.match(text)):
            return Parsed((), None, text)
        read = read_list(text, opener.end())
        if isinstance(read, ParseFailure):
            return Parsed((), read, "")
        values, end = read
        if text[end:].strip():
            again = InvalidKind.SEVERAL_CALLS if _OPENER.match(text, end) else InvalidKind.BAD_JSON
            failure = ParseFailure(again, "There is text after the list.")
            return Parsed((), failure, text[end:])
        call = self._named(int(opener[1]), values)
        return Parsed((), call, "") if isinstance(call, ParseFailure) else Parsed((call,), None, "")

    def _named(self, number: int, values: list) -> Call | ParseFailure:
        if number >= len(self.tools):
            hint = f"no tool has the number {number}; there are {len(self.tools)}, from 0"
            return ParseFailure(InvalidKind.UNKNOWN_TOOL, hint)
        names = _places(self.tools[number])
        if len(values) > len(names):
            hint = f"tool {number} takes {len(names)} arguments, not {len(values)}"
            return ParseFailure(InvalidKind.BAD_ARGUMENTS, hint)
        return Call(self.tools[number].name, dict(zip(names, values, strict=False)))

    def render(self, call: Call) -> str:
        """The call as text.

        Raises:
            ValueError: the episode has no such tool, or an argument has no place: it is unknown,
                or one before it is missing.
        """
        names = [tool.name for tool in self.tools]
        if call.tool not in names:
            raise ValueError(f"no tool is called {call.tool!r}: {nearest(call.tool, names)}")
        number, given = names.index(call.tool), set(call.arguments)
        takes = _places(self.tools[number])
        places = takes[: len(given)]
        if given != set(places):
            raise ValueError(f"{call.tool} takes {takes} in this order, got {list(call.arguments)}")
        return f"{number} {dump([call.arguments[name] for name in places])}"


def _places(tool: Tool) -> list[str]:
    return list(tool.schema.get("properties", ()))


def codec_of(name: str, tools: Iterable[Tool]) -> Codec:
    """The codec of that name for an episode that offers these tools.

    Raises:
        ValueError: there is no such codec; the nearest name is offered.
    """
    choice("codec", name, (*CODECS, "id"))
    return IdCodec.of(tools) if name == "id" else CODECS[name]

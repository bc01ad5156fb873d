"""Checks of the exercises of notebook 02: how an action is read. `checks` says how they work."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentrl_lab.workbook.checks import Verdict, Wrong, short, truth

Read = Callable[[str], Any]
Tools = Mapping[str, Sequence[str]]
StillMeans = Callable[[str, Tools, Tools], Any]


# Exercise 2.1


class Attack(NamedTuple):
    """A text, what it holds, and the mistake of a reader who finds something else in it."""

    text: str
    call: tuple[str, dict[str, Any]] | None
    mistake: str


def _call(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return tool, arguments


def _written(tool: str, arguments: str) -> str:
    return f"<function={tool}>{arguments}</function>"


QUERY = _written("query_ticket", '{"ticket_id": "S1001"}')
FOUND = _call("query_ticket", ticket_id="S1001")
SAID = "Write <function=NAME>{}</function> to call."
ATTACKS = (
    Attack(QUERY, FOUND, "this is a call and nothing else"),
    Attack("", None, "nothing was written"),
    Attack("Please wait, I will look into S1001.", None, "prose is no call"),
    Attack(f"Let me look.\n{QUERY}", FOUND, "prose around a call is allowed"),
    Attack(f"{QUERY} Thanks.", FOUND, "prose around a call is allowed, behind it as well"),
    Attack(
        _written("reply", '{"content": "a } in a string"}'),
        _call("reply", content="a } in a string"),
        "a brace inside a string closes nothing: let json find where the object ends",
    ),
    Attack(
        _written("find", '{"where": {"paid": true}}'), _call("find", where={"paid": True}),
        "objects may lie in objects: the first } is not the end",
    ),
    Attack(
        _written("reply", json.dumps({"content": SAID})), _call("reply", content=SAID),
        "a call that is quoted inside a string is text, and the tag in it closes nothing",
    ),
    Attack(
        _written("reply", r'{"content": "she said \"hello\""}'),
        _call("reply", content='she said "hello"'),
        "an escaped quote does not end a string",
    ),
    Attack(f"{QUERY}{QUERY}", None, "two calls in a message: none is executed"),
    Attack(f"{QUERY} and <function=reply>", None, "the second call is broken, and counts as one"),
    Attack(QUERY.removesuffix("</function>"), None, "the call is not closed"),
    Attack(QUERY.replace("}</function>", "</function>"), None, "the object is not closed"),
    Attack(QUERY.replace("</", " thanks</"), None, "there is text between arguments and end tag"),
    Attack(QUERY.replace('"', "'"), None, "single quotes are Python, not JSON: repair nothing"),
    Attack(QUERY.replace('"}', '",}'), None, "a comma before the brace is not JSON"),
    Attack(_written("query_ticket", '["S1001"]'), None, "arguments are an object, not a list"),
    Attack(_written("query_ticket", '{"n": NaN}'), None, "NaN is not JSON: see parse_constant"),
    Attack(QUERY.replace("_", " "), None, "the name of a tool is one word"),
    Attack(QUERY.replace("query_ticket", ""), None, "the call has no name"),
    Attack(
        _written("query_ticket", '{"ticket_id": open("secret").read()}'), None,
        "this is Python, not JSON",
    ),
    Attack(QUERY.replace("S1001", "S1001\n"), None, "a raw line break in a string is not JSON"),
    Attack(
        "<function=query_ticket>" + '{"a":' * 20_000, None,
        "nothing closes, and so deep json raises RecursionError, which is no ValueError",
    ),
)  # fmt: skip


def check_reader(read: Read) -> Verdict:
    """Exercise 2.1: read(text) gives (tool, arguments) or None, whatever was written."""
    for attack in ATTACKS:
        try:
            got = read(attack.text)
        except (NotImplementedError, KeyboardInterrupt):
            raise
        except (Exception, SystemExit) as error:
            raised = f"it raised {type(error).__name__} ({error}) for {short(attack.text)}"
            raise Wrong(f"{raised}: {attack.mistake}. A policy may write anything") from None
        if isinstance(got, list):
            got = tuple(got)
        if got != attack.call:
            wanted = f"expected {short(attack.call)}, got {short(got)}"
            raise Wrong(f"{short(attack.text)}: {attack.mistake}; {wanted}")
    return Verdict(True, f"{len(ATTACKS)} attacks, and every call was read as it was meant")


# Exercise 2.2

DESK: Tools = {
    "query_ticket": ["ticket_id"],
    "update_ticket": ["ticket_id", "new_status"],
    "reply": ["content"],
}
BEHIND = DESK | {"write_note": ["ticket_id", "note"]}
BETWEEN = {"refund": ["ticket_id"]} | DESK
REPLACED = {"ask": ["ticket_id"]} | {n: p for n, p in DESK.items() if n != "query_ticket"}
MOVED = DESK | {"update_ticket": ["new_status", "ticket_id"]}
LONGER = DESK | {"reply": ["content", "language"]}
SHORTER = DESK | {"update_ticket": ["ticket_id"]}
GONE = {name: places for name, places in DESK.items() if name != "query_ticket"}
CHANGES: Sequence[tuple[str, Tools, str]] = (
    ("the same tools", DESK, "nothing changed, so every message means what it meant"),
    ("the same in another order", dict(reversed(DESK.items())),
     "numbers go by the names in order of the alphabet, not by the order of the dict"),
    ("write_note, which comes last", BEHIND, "a tool behind the others moves no number"),
    ("refund, which comes between", BETWEEN, "a tool in between moves the numbers behind it"),
    ("the arguments of update_ticket swapped", MOVED, "values are told apart by their place"),
    ("one more argument for reply", LONGER, "the message has no value for the new place"),
    ("one argument less for update_ticket", SHORTER, "the message has a value too many"),
    ("query_ticket taken away", GONE, "a tool that is gone cannot be meant"),
    ("ask in place of query_ticket", REPLACED, "the numbers of the others are what they were"),
)  # fmt: skip


def check_numbers(still_means: StillMeans) -> Verdict:
    """Exercise 2.2: still_means(tool, before, after) for tools by number, values by place."""
    for change, after, mistake in CHANGES:
        for tool in DESK:
            before, kept = copy.deepcopy((DESK, after))
            got = still_means(tool, before, kept)
            if (before, kept) != (DESK, after):
                raise Wrong("it changed the tools that it was given")
            wanted = _still_means(tool, DESK, after)
            if truth(got, f"{change}, {tool}") != wanted:
                raise Wrong(f"{change}, {tool}: {mistake}. Expected {wanted}, got {short(got)}")
    return Verdict(True, f"{len(CHANGES)} changes of the tools, and you knew what each one breaks")


def _still_means(tool: str, before: Tools, after: Tools) -> bool:
    if tool not in after or sorted(before).index(tool) != sorted(after).index(tool):
        return False
    return list(before[tool]) == list(after[tool])

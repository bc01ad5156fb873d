"""The checks of notebook 02: right answers in different words pass, usual mistakes are named."""

from __future__ import annotations

import ast
import json
import re

import pytest

from agentrl_lab.records import Call
from agentrl_lab.workbook import checks
from agentrl_lab.workbook.lessons import checks_encoding as own
from agentrl_lab.world.parser import CODECS, one_call

# 2.1: a reader


def refuse(constant):
    raise ValueError(constant)


def right_reader(text):
    """Cuts the text in pieces; a quoted opener is found by decoding, never by searching."""
    name, _, rest = text.partition("<function=")[2].partition(">")
    try:
        arguments, end = json.JSONDecoder(parse_constant=refuse).raw_decode(rest)
    except (ValueError, RecursionError):
        return None
    ends, behind = rest[end:].startswith("</function>"), rest[end:]
    fits = name.split() == [name] and isinstance(arguments, dict)
    return (name, arguments) if fits and ends and "<function=" not in behind else None


def no_deeper(text):
    """Right in all but one thing: json gives up on great depth with another error."""
    name, _, rest = text.partition("<function=")[2].partition(">")
    try:
        arguments, end = json.JSONDecoder(parse_constant=refuse).raw_decode(rest)
    except ValueError:
        return None
    fits = name.split() == [name] and isinstance(arguments, dict)
    behind = rest[end:]
    alone = behind.startswith("</function>") and "<function=" not in behind
    return (name, arguments) if fits and alone else None


def the_package_reads(text):
    call = one_call(CODECS["function"].parse(text))
    return (call.tool, call.arguments) if isinstance(call, Call) else None


def shortest_match(text):
    found = re.search(r"<function=(\S+?)>({.*?})</function>", text)
    try:
        return (found[1], json.loads(found[2])) if found else None
    except ValueError:
        return None


def up_to_the_first_brace(text):
    found = re.search(r"<function=(\S+?)>({[^}]*})</function>", text)
    try:
        return (found[1], json.loads(found[2])) if found else None
    except ValueError:
        return None


def python_literals(text):
    found = re.search(r"<function=(\S+?)>({.*})</function>", text, re.DOTALL)
    try:
        return (found[1], ast.literal_eval(found[2])) if found else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def only_the_whole_message(text):
    return right_reader(text) if text.startswith("<function=") else None


def lets_errors_out(text):
    found = re.search(r"<function=(\S+?)>(.*)</function>", text, re.DOTALL)
    return (found[1], json.loads(found[2]))


def takes_the_first_of_two(text):
    got = right_reader(text.split("</function><function=")[0] + "</function>")
    return got if text.count("</function><function=") else right_reader(text)


def nothing_behind(text):
    opener = re.search(r"<function=([^<>\s]+)>", text)
    end = text.find("</function>")
    return right_reader(text) if opener and text.endswith("</function>") and end > 0 else None


def takes_not_a_number(text):
    try:
        return right_reader(text) or (
            ("query_ticket", json.loads('{"n": NaN}')) if "NaN" in text else None
        )
    except ValueError:
        return None


@pytest.mark.parametrize("reader", [right_reader, the_package_reads])
def test_right_readers_pass(reader):
    assert checks.judge(own.check_reader, reader).passed


@pytest.mark.parametrize(
    ("reader", "named"),
    [
        (shortest_match, "quoted inside a string"),
        (up_to_the_first_brace, "brace inside a string"),
        (python_literals, "JSON|objects may lie"),
        (only_the_whole_message, "prose around a call"),
        (lets_errors_out, "raised TypeError \\(.*\\) for ''"),
        (takes_the_first_of_two, "two calls"),
        (takes_not_a_number, "NaN is not JSON"),
        (nothing_behind, "behind it as well"),
        (lambda text: None, "this is a call and nothing else"),
        (lambda text: exit(), "SystemExit"),
        (lambda text, more: None, "missing 1 required positional argument"),
        (no_deeper, "RecursionError"),
    ],
)
def test_usual_mistakes_of_readers_are_named(reader, named):
    verdict = checks.judge(own.check_reader, reader)
    assert verdict.passed is False and re.search(named, verdict.text)


def test_unsolved_is_not_attempted():
    def read(text):
        raise NotImplementedError

    assert checks.judge(own.check_reader, read).passed is None
    assert checks.judge(own.check_numbers, lambda *given: read("")).passed is None


# 2.2: numbers


def by_position(tool, before, after):
    place = {name: (n, tuple(before[name])) for n, name in enumerate(sorted(before))}
    there = {name: (n, tuple(after[name])) for n, name in enumerate(sorted(after))}
    return place[tool] == there.get(tool)


def step_by_step(tool, before, after):
    in_front = [sum(name < tool for name in tools) for tools in (before, after)]
    if in_front[0] != in_front[1]:
        return False
    return before[tool] == after.get(tool)


def sorts_in_place(tool, before, after):
    before[tool].sort()
    if tool in after:
        after[tool].sort()
    return by_position(tool, before, after)


def all_before_it_as_well(tool, before, after):
    place = sorted(before).index(tool) + 1
    return sorted(before)[:place] == sorted(after)[:place] and before[tool] == after[tool]


def spoils(tool, before, after):
    after.clear()
    return True


@pytest.mark.parametrize("answer", [by_position, step_by_step])
def test_right_answers_about_numbers_pass(answer):
    assert checks.judge(own.check_numbers, answer).passed


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda tool, before, after: tool in after, "in between|by their place"),
        (lambda tool, before, after: before == after, "behind the others moves no number"),
        (lambda t, b, a: t in a and list(b).index(t) == list(a).index(t), "order of the alphabet"),
        (lambda t, b, a: t in a and sorted(b).index(t) == sorted(a).index(t), "by their place"),
        (lambda t, b, a: t in a and sorted(b).index(t) == sorted(a).index(t)
            and b[t][: len(a[t])] == a[t], "a value too many"),
        (lambda t, b, a: t in a and sorted(b).index(t) == sorted(a).index(t)
            and set(b[t]) <= set(a[t]), "by their place"),
        (lambda tool, before, after: by_position(tool, before, after) or None, "return missing"),
        (lambda tool, before, after: sorted(after).index(tool) >= 0 and before[tool] == after[tool],
            "in between|ValueError"),
        (spoils, "changed the tools"),
        (sorts_in_place, "changed the tools"),
        (all_before_it_as_well, "the numbers of the others are what they were"),
    ],
)  # fmt: skip
def test_usual_mistakes_about_numbers_are_named(answer, named):
    verdict = checks.judge(own.check_numbers, answer)
    assert verdict.passed is False and re.search(named, verdict.text), verdict

"""The parser: syntax of both formats, rule by rule, and the wrong parsers it is not."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrl_lab.records import Call, InvalidKind, ParseFailure
from agentrl_lab.world import parser
from agentrl_lab.world.parser import CODECS, Parsed, one_call

FUNCTION, JSON = CODECS["function"], CODECS["json"]
BOTH = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
QUERY = Call("query_ticket", {"ticket_id": "S1001"})
CORPUS = json.loads((Path(__file__).parent / "data/parser_corpus.json").read_text("utf-8"))


def written(codec: parser.Codec, arguments: str, tool: str = "query_ticket") -> str:
    """A call whose arguments are this very text, valid or not."""
    if codec is FUNCTION:
        return f"<function={tool}>{arguments}</function>"
    return f'{{"tool": "{tool}", "parameters": {arguments}}}'


def verdict(codec: parser.Codec, text: str) -> Call | InvalidKind:
    """The only call of the message, or the kind of failure."""
    found = one_call(codec.parse(text))
    return found.kind if isinstance(found, ParseFailure) else found


def hint(codec: parser.Codec, text: str) -> str:
    found = one_call(codec.parse(text))
    assert isinstance(found, ParseFailure)
    return found.hint


def arguments_of(codec: parser.Codec, arguments: str) -> Any:
    """What `parse` makes of the arguments of one call."""
    found = one_call(codec.parse(written(codec, arguments)))
    assert isinstance(found, Call), found
    return found.arguments


# The cases of public bug reports, each as a whole kind and in both formats.


@BOTH
@pytest.mark.parametrize(
    "message",
    [
        "Write </function> at the end, then stop.",
        "</function>",
        '"}</function><function=x>{"',
        "if (x) { close } }",
        "a}b]c{",
        "{" * 50,
        "[" * 50,
        "\\",
        '\\"',
        '{"tool": "x", "parameters": {}}',
    ],
)
def test_par_01_02_structure_inside_a_string_is_text(codec, message):
    assert arguments_of(codec, json.dumps({"message": message})) == {"message": message}


@BOTH
@pytest.mark.parametrize("between", ["", " ", "\n", " and then\n", ", "])
def test_par_04_two_calls_are_two_calls_and_none_is_executed(codec, between):
    calls = [Call("query_ticket", {"ticket_id": ticket_id}) for ticket_id in ("S1001", "S1002")]
    text = between.join(codec.render(call) for call in calls)
    assert codec.parse(text) == Parsed(tuple(calls), None, between)
    assert verdict(codec, text) is InvalidKind.SEVERAL_CALLS


@BOTH
def test_par_05_equal_calls_are_not_merged(codec):
    ids = ["S1001", "S1001", "S1003"]
    text = "\n".join(written(codec, f'{{"ticket_id": "{ticket_id}"}}') for ticket_id in ids)
    assert [call.arguments["ticket_id"] for call in codec.parse(text).calls] == ids


@BOTH
def test_par_07_prose_around_a_call_comes_back_as_text(codec):
    text = f"I will look it up.\n{codec.render(QUERY)}\nThen I answer {{soon}}."
    parsed = codec.parse(text)
    assert parsed == Parsed((QUERY,), None, "I will look it up.\n\nThen I answer {soon}.")
    assert one_call(parsed) == QUERY


@BOTH
@pytest.mark.parametrize("block", ["<think>maybe {}</think>", "<thinking>{}\n", "(maybe {})"])
def test_par_08_a_call_in_a_think_block_counts(codec, block):
    rehearsed = Call("update_ticket", {"ticket_id": "S1001", "status": "closed"})
    text = block.replace("{}", codec.render(rehearsed)) + codec.render(QUERY)
    assert codec.parse(text).calls == (rehearsed, QUERY)
    assert verdict(codec, text) is InvalidKind.SEVERAL_CALLS


@BOTH
@pytest.mark.parametrize("fence", ["```\n{}\n```", "```json\n{}\n```", "~~~\n{}\n~~~", "`{}`"])
def test_par_09_a_call_in_a_fence_counts(codec, fence):
    assert verdict(codec, "So:\n" + fence.replace("{}", codec.render(QUERY))) == QUERY


@BOTH
@pytest.mark.parametrize(
    "prose",
    [
        "Start a call with <function=NAME> and JSON.\n",
        "Write <function=NAME>, JSON, </function>.\n",
        '"<function=NAME>" opens a call, </function> closes it.\n',
        "It is <function= or <function=NAME>\n\n",
        'Start a call with {"tool": NAME} and more.\n',
        'Write {"tool" or {"parameters" and go on. ',
        "Braces { open and } close, {{ too. ",
        '{"note": this is not JSON} ',
    ],
)
def test_par_10_an_opener_in_prose_does_not_swallow_the_call(codec, prose):
    assert codec.parse(prose + codec.render(QUERY)) == Parsed((QUERY,), None, prose)


@BOTH
@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1.5E999", "9" * 4300]
)
@pytest.mark.parametrize("place", ['{"priority": %s}', '{"a": [1, {"b": %s}]}'])
def test_par_14_15_numbers_that_are_not_finite_are_refused_by_name(codec, number, place):
    text = written(codec, place % number)
    assert verdict(codec, text) is InvalidKind.BAD_JSON
    assert repr(number[:20]) in hint(codec, text)


@BOTH
@pytest.mark.parametrize("times", [21, 1000, 2000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ('{"a":[', "]}"), ("[", "]")])
@pytest.mark.parametrize("closed", [True, False])
def test_par_17_deep_nesting_is_an_invalid_action(codec, times, opening, closing, closed):
    text = written(codec, opening * times + "1" + closing * times)
    for message in (text if closed else text[: text.index("1")], opening * times):
        found = one_call(codec.parse(message))
        assert isinstance(found, ParseFailure)
        assert len(found.hint) < 120
    assert verdict(codec, codec.render(QUERY)) == QUERY  # the next message works


@BOTH
def test_par_17_depth_is_counted_in_the_arguments(codec):
    for depth, expected in ((parser.MAX_DEPTH, True), (parser.MAX_DEPTH + 1, False)):
        text = written(codec, '{"a":' * depth + "1" + "}" * depth)
        assert isinstance(verdict(codec, text), Call) is expected
    assert "nested too deep" in hint(codec, text)


# PAR-22, PAR-23, PAR-27: the syntax half. The tests of the desk hold what the schema says of it.


@BOTH
@pytest.mark.parametrize(
    "value", ["1001", '"1001"', "1001.0", '"007"', "true", "null", "-0.5", '"1e3"', '"null"']
)
def test_par_22_23_types_and_leading_zeros_are_kept(codec, value):
    found = arguments_of(codec, f'{{"ticket_id": {value}}}')["ticket_id"]
    assert json.dumps(found) == value


@BOTH
@pytest.mark.parametrize("arguments", ["null", "{}", "", " "])
def test_par_27_no_arguments_are_an_empty_object(codec, arguments):
    text = written(codec, arguments)
    if codec is JSON and not arguments.strip():
        text = '{"tool": "query_ticket"}'
    assert verdict(codec, text) == Call("query_ticket", {})


@BOTH
@pytest.mark.parametrize(
    "arguments",
    ['"{\\"ticket_id\\": \\"S1001\\"}"', '"S1001"', "[]", '["ticket_id"]', "7", "-1.5", "false"],
)
def test_par_28_parameters_must_be_an_object(codec, arguments):
    text = written(codec, arguments)
    assert verdict(codec, text) is InvalidKind.BAD_JSON
    assert "parameters must be an object" in hint(codec, text)


@BOTH
@pytest.mark.parametrize("control", ["\n", "\t", "\r", "\x00", "\x1f"])
def test_par_29_a_raw_control_character_is_named(codec, control):
    text = written(codec, f'{{"message": "line one{control}line two"}}')
    assert verdict(codec, text) is InvalidKind.BAD_JSON
    assert "control character" in hint(codec, text)


@BOTH
def test_par_29_an_escaped_newline_is_one_character(codec):
    message = arguments_of(codec, '{"message": "line one\\nline two"}')["message"]
    assert message == "line one\nline two"
    assert len(message) == 17


@BOTH
@pytest.mark.parametrize("message", ["keep commas, } and [1,] as they are", "// no", "'a': None,}"])
def test_par_30_nothing_in_a_valid_string_is_repaired(codec, message):
    assert arguments_of(codec, json.dumps({"message": message})) == {"message": message}


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (JSON, "{“tool”：“query_ticket”，“parameters”：{“ticket_id”：“S1001”}}"),
        (FUNCTION, '<function=query_ticket>｛"ticket_id"："S1001"｝</function>'),
        *[
            (codec, written(codec, arguments))
            for codec in CODECS.values()
            for arguments in (
                *('{"a"："b"}', '{"a": “b”}', '{"a": 1，"b": 2}', '｛"a": 1}', '{"a": 1｝'),
                *('{“a”: “say \\"hi\\"”}', "｛“a”：“b”｝"),
            )
        ],
    ],
)
def test_par_34_full_width_punctuation_is_named_in_both_formats(codec, text):
    assert verdict(codec, text) is InvalidKind.FULL_WIDTH
    assert "full-width punctuation" in hint(codec, text)


@BOTH
def test_par_35_full_width_characters_in_a_string_are_untouched(codec):
    message = "客户说“已退款”，请核对：S1001"
    assert arguments_of(codec, f'{{"message": "{message}"}}') == {"message": message}


@BOTH
@pytest.mark.parametrize("junk", ["<function=" * 20_000, '{"tool": ' * 20_000, "x" * 10_000_000])
def test_par_40_long_junk_is_not_read(codec, junk):
    assert verdict(codec, junk) is InvalidKind.TOO_LONG


@BOTH
def test_rol_06_an_invented_result_is_prose_and_a_second_call_is_not(codec):
    text = codec.render(QUERY) + '{"status": "closed"}'
    assert codec.parse(text) == Parsed((QUERY,), None, '{"status": "closed"}')
    assert verdict(codec, text + codec.render(QUERY)) is InvalidKind.SEVERAL_CALLS


# The other rules of the module docstring.


@pytest.mark.parametrize("row", CORPUS, ids=[f"{row['codec']}: {row['name']}" for row in CORPUS])
def test_parse_corpus(row):
    found = verdict(CODECS[row["codec"]], row["text"])
    shown = found if isinstance(found, InvalidKind) else [found.tool, found.arguments]
    assert json.dumps(shown) == json.dumps(row["expected"])  # 1, 1.0 and true differ


@pytest.mark.parametrize(("codec", "opener"), [(FUNCTION, "<function="), (JSON, '{"tool"')])
def test_parse_every_cut_of_a_call_is_unfinished(codec, opener):
    arguments = {"a": [-1.5e10, True, None, {"b": 'é "quoted" \\ \t'}], "c": False}
    text = json.dumps(arguments)  # with \u escapes: those are cut too
    text = written(codec, text)
    for length in range(len(opener), len(text)):
        assert verdict(codec, text[:length]) is InvalidKind.UNFINISHED, text[:length]
    assert verdict(codec, text) == Call("query_ticket", arguments)


@BOTH
def test_parse_duplicate_key_is_named(codec):
    assert "'status'" in hint(codec, written(codec, '{"status": "open", "status": "closed"}'))
    assert "'b'" in hint(codec, written(codec, '{"a": {"b": 1, "b": 1}}'))


@BOTH
@pytest.mark.parametrize("string", ["\\ud800", "\\udfff", "x\\ud83dx", "\\ude00\\ud83d", "\ud800"])
@pytest.mark.parametrize("place", ['{"m": "%s"}', '{"%s": 1}', '{"a": [{"b": "%s"}]}'])
def test_parse_lone_surrogate_is_refused(codec, string, place):
    text = written(codec, place % string)
    assert verdict(codec, text) is InvalidKind.BAD_JSON
    assert "lone surrogate" in hint(codec, text)


@BOTH
def test_render_lone_surrogate_is_escaped_so_that_text_always_encodes(codec):
    text = codec.render(Call("reply", {"message": "bad \ud800, good 😀"}))
    assert text.encode("utf-8").count(b"\\ud800") == 1
    assert "good 😀" in text
    assert "lone surrogate" in hint(codec, text)


@BOTH
@pytest.mark.parametrize("tool", ["", "two words", "a>b", "<a", "\ud800"])
def test_render_what_is_no_tool_name_raises(codec, tool):
    with pytest.raises(ValueError, match="one word"):
        codec.render(Call(tool))


@BOTH
def test_render_non_finite_number_raises(codec):
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.render(Call("t", {"a": float("nan")}))


def test_render_is_the_printed_form():
    call = Call("query_ticket", {"ticket_id": "S1001", "note": "é"})
    arguments = '{"ticket_id": "S1001", "note": "é"}'
    assert FUNCTION.render(call) == f"<function=query_ticket>{arguments}</function>"
    assert JSON.render(call) == f'{{"tool": "query_ticket", "parameters": {arguments}}}'


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("{,}", InvalidKind.BAD_JSON),
        ('{"a', InvalidKind.UNFINISHED),
        ("{：}", InvalidKind.FULL_WIDTH),
    ],
)
@BOTH
def test_one_call_a_broken_call_counts_as_a_call(codec, broken, kind):
    broken = written(codec, broken)
    assert verdict(codec, broken) == kind
    assert verdict(codec, codec.render(QUERY) + broken) is InvalidKind.SEVERAL_CALLS
    assert codec.parse(broken + codec.render(QUERY)).calls == ()  # nothing after it is read


def test_codecs_know_their_names():
    assert {name: codec.name for name, codec in CODECS.items()} == {
        "function": "function",
        "json": "json",
    }


# Properties.

FRAGMENTS = st.sampled_from(
    [
        *("<function=", "query_ticket", ">", "</function>", '{"tool"', '"parameters"', '{"a": '),
        *('"', "{", "}", "[", "]", ":", ",", "\\", "\\u", "\\ud800", "1e400", "NaN", "null", "-"),
        *(" ", "“", "”", "：", "，", "｛", "｝", "\ud800", "\x00", "\n", "```"),
        *(FUNCTION.render(QUERY), JSON.render(QUERY), "<think>", "</think>", "x"),
    ]
)
# A surrogate in an argument is escaped, and refused on the way back: tested above.
STRINGS = st.text(st.characters(exclude_categories=["Cs"])) | FRAGMENTS.filter(str.isprintable)
NUMBERS = st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)
CALLS = st.builds(
    Call,
    st.from_regex(r"[A-Za-z_][\w.:/-]{0,30}", fullmatch=True),
    st.dictionaries(STRINGS, VALUES, max_size=4),
)
JUNK = st.lists(FRAGMENTS, max_size=40).map("".join) | st.text(st.characters(exclude_categories=[]))


@BOTH
@given(text=JUNK)
@example(text="{" * 5000)
@example(text="<function=x>" + '{"a":' * 3000)
@example(text='<function=x>{"":"\\')
def test_parse_never_raises_and_every_call_it_finds_can_be_written(codec, text):
    parsed = codec.parse(text)
    found = one_call(parsed)
    assert isinstance(found, Call) or len(found.hint) <= 200
    assert len(parsed.text) <= len(text)
    for call in parsed.calls:
        for other in CODECS.values():
            rendered = other.render(call)
            assert other.parse(rendered).calls == (call,)
            rendered.encode("utf-8")


@BOTH
@given(call=CALLS)
def test_parse_of_render_is_the_call(codec, call):
    text = codec.render(call)
    assert codec.parse(text) == Parsed((call,), None, "")
    json_again = json.dumps(codec.parse(text).calls[0].arguments)
    assert json_again == json.dumps(call.arguments)  # types too: 1 and 1.0 differ
    text.encode("utf-8")


@given(call=CALLS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_parse_text_is_what_stands_around_the_call(call, before, after):
    if "<" not in before + after:
        parsed = FUNCTION.parse(before + FUNCTION.render(call) + after)
        assert parsed == Parsed((call,), None, before + after)


# Linear work: characters looked at, not seconds.


class Meter:
    """Stands in for a compiled pattern or a decoder and counts the characters it passes over."""

    def __init__(self, inner: Any, counts: list[int]) -> None:
        self.inner, self.counts = inner, counts

    def search(self, text: str, start: int) -> re.Match[str] | None:
        found = self.inner.search(text, start)
        self.counts.append((found.end() if found else len(text)) - start)
        return found

    def finditer(self, text: str, start: int):
        for found in self.inner.finditer(text, start):
            self.counts.append(found.end() - start)
            start = found.end()
            yield found

    def raw_decode(self, text: str) -> Any:
        self.counts.append(len(text))
        return self.inner.raw_decode(text)


def characters_read(codec: parser.Codec, text: str) -> int:
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "MAX_CHARACTERS", len(text))
        for name in ("_TAG_OPENER", "_JSON_OPENER", "_TAG", "_MARK", "_DECODER"):
            patch.setattr(parser, name, Meter(getattr(parser, name), counts))
        codec.parse(text)
    return sum(counts)


PIECES = [
    *("<function=", "<function=x>", '<function=x>"', "<function=x>[", "<function=x>x</function>"),
    *('{"tool": ', '{"a": ', '{"a" ', '{"a":1, ', '{"a":[{', '{"', '{"a"" ', '{"\\', '{"a": "}" '),
    *('{"a": x} ', '{"a":1}{"b" ', '[{"a"}', "{", "{ ", "｛“", "｛“tool", '{"x"\\', '\\"{"', " "),
    *(FUNCTION.render(QUERY), JSON.render(QUERY), "<function=x> ", "<function=x", '"'),
    *("</function>", 'x {"a":\n"]}{"a":{"parameters":'),
]


@BOTH
@pytest.mark.parametrize("piece", PIECES)
def test_parse_reads_a_bounded_number_of_characters_per_character(codec, piece):
    # An object in prose is scanned once per level around it, for each of two states of quotes.
    bound = 2 * (parser.MAX_DEPTH + 5)
    short, long = (characters_read(codec, piece * times) for times in (500, 1000))
    assert long <= bound * len(piece) * 1000
    assert long <= 2 * short + bound * 100  # twice the length, twice the work


# Wrong parsers: each must get at least one of these messages wrong, and ours none.

Extract = Callable[[str], list[Call]]
OPENER = re.compile(r"<function=(\w+)>")


def loads(tool: str, arguments: str) -> list[Call]:
    try:
        return [Call(tool, json.loads(arguments))]
    except ValueError:
        return []


def greedy(text: str) -> list[Call]:
    found = re.search(r"<function=(\w+)>(\{.*\})</function>", text, re.DOTALL)
    return loads(found[1], found[2]) if found else []


def first_closing_tag(text: str) -> list[Call]:
    pairs = re.findall(r"<function=(\w+)>(.*?)</function>", text, re.DOTALL)
    return [call for tool, arguments in pairs for call in loads(tool, arguments)]


def counts_braces(text: str) -> list[Call]:
    calls = []
    for opener in OPENER.finditer(text):
        depth = 0
        for at in range(opener.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                calls += loads(opener[1], text[opener.end() : at + 1])
                break
    return calls


def one_per_name(text: str) -> list[Call]:
    return list({call.tool: call for call in FUNCTION.parse(text).calls}.values())


def repairs_commas(text: str) -> list[Call]:
    return list(FUNCTION.parse(re.sub(r",\s*([}\]])", r"\1", text)).calls)


def plain_punctuation(text: str) -> list[Call]:
    return list(FUNCTION.parse(text.translate(str.maketrans("“”：，｛｝", '"":,{}'))).calls)


def lenient_json(text: str) -> list[Call]:
    calls = []
    for opener in OPENER.finditer(text):
        try:
            found, _ = json.JSONDecoder(strict=False).raw_decode(text, opener.end())
        except ValueError:
            continue
        calls.append(Call(opener[1], found))
    return calls


def skips_fences(text: str) -> list[Call]:
    return list(FUNCTION.parse(re.sub(r"```.*?```", "", text, flags=re.DOTALL)).calls)


WRONG_PARSERS = {
    wrong.__name__: wrong
    for wrong in (
        *(greedy, first_closing_tag, counts_braces, one_per_name, repairs_commas),
        *(plain_punctuation, lenient_json, skips_fences),
    )
}


def reply(message: str) -> tuple[str, list[Call]]:
    call = Call("reply", {"message": message})
    return FUNCTION.render(call), [call]


MESSAGES = [
    reply("Write </function> at the end, then stop."),
    reply("a}b]c{"),
    reply("keep commas, } and [1,] as they are"),
    reply("客户说“已退款”，请核对：S1001"),
    (FUNCTION.render(QUERY) * 2, [QUERY, QUERY]),
    (f"```\n{FUNCTION.render(QUERY)}\n```", [QUERY]),
    ('<function=query_ticket>{"ticket_id": NaN}</function>', []),
    ('<function=query_ticket>{"ticket_id": "S1001"', []),
]


def failed(extract: Extract) -> list[str]:
    return [text for text, calls in MESSAGES if extract(text) != calls]


def test_the_parser_reads_the_messages_right():
    assert failed(lambda text: list(FUNCTION.parse(text).calls)) == []


@pytest.mark.parametrize("wrong", WRONG_PARSERS.values(), ids=WRONG_PARSERS.keys())
def test_the_messages_reject_wrong_parsers(wrong):
    assert failed(wrong)

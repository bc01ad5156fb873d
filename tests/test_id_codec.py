"""Tools as numbers: what a message means depends on the list of the episode."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_lab.records import Call, InvalidKind, ParseFailure
from agentrl_lab.world.desk import QUERY_TICKET, REPLY, STANDARD_TOOLS, UPDATE_TICKET
from agentrl_lab.world.id_codec import IdCodec, codec_of
from agentrl_lab.world.parser import CODECS, MAX_CHARACTERS, one_call
from agentrl_lab.world.toolsets import ASSIGN_TICKET

THREE = IdCodec.of(STANDARD_TOOLS)  # 0 query_ticket, 1 reply, 2 update_ticket
QUERY = Call("query_ticket", {"ticket_id": "S1001"})
UPDATE = Call("update_ticket", {"ticket_id": "S1001", "new_status": "closed"})


def read(text: str, codec: IdCodec = THREE) -> Call | ParseFailure:
    return one_call(codec.parse(text))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (QUERY, '0 ["S1001"]'),
        (UPDATE, '2 ["S1001", "closed"]'),
        (Call("reply", {"content": 'Say "hello", 你好.'}), '1 ["Say \\"hello\\", 你好."]'),
        (Call("update_ticket", {"ticket_id": "S1001"}), '2 ["S1001"]'),
        (Call("query_ticket"), "0 []"),
    ],
)
def test_written_and_read_by_place(call, text):
    assert THREE.render(call) == text and read(text) == call


def test_blanks_around_are_allowed():
    assert read('  0  [ "S1001" ] \n') == QUERY


def test_one_more_tool_gives_the_same_message_another_meaning():
    four = IdCodec.of([*STANDARD_TOOLS, ASSIGN_TICKET])
    assert read('0 ["S1001"]', four) == Call("assign_ticket", {"ticket_id": "S1001"})
    assert four.render(QUERY) == '1 ["S1001"]'


def test_order_of_offering_does_not_matter():
    assert IdCodec.of([UPDATE_TICKET, REPLY, QUERY_TICKET]) == THREE


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", InvalidKind.NO_CALL),
        ("Please wait.", InvalidKind.NO_CALL),
        ('query_ticket ["S1001"]', InvalidKind.NO_CALL),
        ('I will look: 0 ["S1001"]', InvalidKind.NO_CALL),
        ('-1 ["S1001"]', InvalidKind.NO_CALL),
        ('1234 ["S1001"]', InvalidKind.NO_CALL),
        ("0", InvalidKind.NO_CALL),
        ('3 ["S1001"]', InvalidKind.UNKNOWN_TOOL),
        ('999 ["S1001"]', InvalidKind.UNKNOWN_TOOL),
        ('0 ["S1001", "closed"]', InvalidKind.BAD_ARGUMENTS),
        ('0 ["S1001"', InvalidKind.UNFINISHED),
        ('0 ["S1001', InvalidKind.UNFINISHED),
        ('0 ["S1001"] thanks', InvalidKind.BAD_JSON),
        ("0 ['S1001']", InvalidKind.BAD_JSON),
        ('0 ["S1001",]', InvalidKind.BAD_JSON),
        ("0 [NaN]", InvalidKind.BAD_JSON),
        ("0 [1e400]", InvalidKind.BAD_JSON),
        ('0 ["\\ud800"]', InvalidKind.BAD_JSON),
        ("0 " + "[" * 50_000, InvalidKind.TOO_LONG),
        ("0 " + "[" * 5000, InvalidKind.BAD_JSON),
        ('0 ["S1001"], "more": [1]', InvalidKind.BAD_JSON),
        ('0 ["S1001"]}} thanks', InvalidKind.BAD_JSON),
        ('0 ["S1001"] 0 ["S1001"]', InvalidKind.SEVERAL_CALLS),
        ('000 ["S1001"]', InvalidKind.NO_CALL),
        ('\u0660 ["S1001"]', InvalidKind.NO_CALL),
        ('\uff10 ["S1001"]', InvalidKind.NO_CALL),
        ('0\u3000["S1001"]', InvalidKind.NO_CALL),
        ('0 [“S1001”]', InvalidKind.FULL_WIDTH),
    ],
)  # fmt: skip
def test_what_is_no_call_is_named(text, kind):
    found = read(text)
    assert isinstance(found, ParseFailure) and found.kind is kind and found.hint


@given(st.text() | st.text(alphabet='0129 []{}",:S\\'))
def test_any_text_is_read_and_a_call_is_a_number_and_a_list(text):
    found = read(text)
    assert isinstance(found, Call | ParseFailure)
    if isinstance(found, Call):
        assert isinstance(json.loads(text[text.index("[") :]), list)


@given(
    st.sampled_from(STANDARD_TOOLS),
    st.lists(st.text(max_size=30), max_size=2),
)
def test_what_is_written_is_read_back(tool, values):
    names = list(tool.schema["properties"])
    call = Call(tool.name, dict(zip(names, values, strict=False)))
    assert read(THREE.render(call)) == call


def test_a_lone_surrogate_is_written_as_its_escape_and_refused():
    text = THREE.render(Call("reply", {"content": "a\ud800"}))
    assert text == '1 ["a\\ud800"]' and read(text).kind is InvalidKind.BAD_JSON


@pytest.mark.parametrize(
    "call",
    [
        Call("close_ticket"),
        Call("query_ticket", {"id": "S1"}),
        Call("update_ticket", {"new_status": "open"}),
    ],
)
def test_what_has_no_place_is_refused(call):
    with pytest.raises(ValueError, match=call.tool):
        THREE.render(call)


def test_codec_by_name():
    assert codec_of("id", STANDARD_TOOLS) == THREE
    with pytest.raises(ValueError, match="codec 'ID' is not known"):
        codec_of("ID", STANDARD_TOOLS)
    assert all(codec_of(name, STANDARD_TOOLS) is codec for name, codec in CODECS.items())
    assert THREE.parse("x" * (MAX_CHARACTERS + 1)).calls == ()

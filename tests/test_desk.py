"""The desk: whatever is asked of it, an answer comes back, and nothing leaks into or out of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrl_lab.records import InvalidKind, Outcome
from agentrl_lab.world.desk import (
    QUERY_TICKET,
    REPLY,
    STANDARD_TOOLS,
    UPDATE_TICKET,
    Change,
    Store,
    TicketDesk,
    Tool,
)

TICKETS = {
    "S1001": {"ticket_id": "S1001", "status": "open", "paid": True, "history": [{"text": "a"}]},
    "007": {"ticket_id": "007", "status": "pending", "paid": False, "history": []},
}
FIND = QUERY_TICKET.alias("find", {"ticket_id": "number"})
SET = UPDATE_TICKET.alias("set", {"ticket_id": "new_status", "new_status": "ticket_id"})

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)  # fmt: skip
NAMES = st.sampled_from(["query_ticket", "update_ticket", "reply", "find", "set", "crash", "", "S"])
KEYS = st.sampled_from(["ticket_id", "new_status", "content", "number"]) | st.integers()
NEAR_ARGUMENTS = st.dictionaries(KEYS, st.sampled_from(["S1001", "closed", "S9", 1001]) | ANY_JSON)


def crash(store: Store, **_: Any) -> None:
    raise RuntimeError("line is dead " * 50)


CRASH = Tool("crash", "fails", {"type": "object"}, crash)


def make_desk(*extra: Tool) -> TicketDesk:
    return TicketDesk(TICKETS, (*STANDARD_TOOLS, FIND, SET, CRASH, *extra))


def query(desk: TicketDesk, ticket_id: str = "S1001") -> dict[str, Any]:
    return desk.call("query_ticket", {"ticket_id": ticket_id}).data


# No exception, no half-done call


@given(NAMES | st.text() | ANY_JSON, NEAR_ARGUMENTS | ANY_JSON | st.sets(st.integers()))
@example([], {})
@example(None, None)
@example("query_ticket", {1: 2, "x": 3})
@example("crash", [1])
def test_call_any_tool_and_arguments_answers_and_changes_only_by_a_valid_update(tool, arguments):
    desk = make_desk()
    before = copy.deepcopy(desk.store)
    outcome = desk.call(tool, arguments)
    assert isinstance(outcome, Outcome) and outcome.ok is (outcome.invalid is None)
    assert outcome.ok or outcome.data == {
        "error": outcome.invalid.kind.value, "hint": outcome.invalid.hint,
    }  # fmt: skip
    if not (outcome.ok and tool in ("update_ticket", "set", "reply")):
        assert desk.store == before


def test_call_foreign_tool_that_raises_gives_short_error_data():
    outcome = make_desk().call("crash", {})
    assert outcome.ok and outcome.data["error"] == "RuntimeError"
    assert len(outcome.data["message"]) == 200


@pytest.mark.parametrize("answer", ["done", None, 3, ["a"]])
def test_call_foreign_tool_without_fields_gives_a_result_field(answer):
    tool = Tool("say", "says", {"type": "object"}, lambda store: answer)
    assert make_desk(tool).call("say", {}).data == {"result": answer}


def test_call_foreign_tool_with_an_uncopyable_answer_gives_error_data():
    tool = Tool("stream", "streams", {"type": "object"}, lambda store: {"rows": (n for n in ())})
    assert make_desk(tool).call("stream", {}).data["error"] == "TypeError"


def test_call_foreign_tool_without_properties_refuses_arguments_by_name():
    tool = Tool("list_queues", "lists", {"type": "object", "additionalProperties": False}, crash)
    aliased = tool.alias("queues")
    for name in ("list_queues", "queues"):
        outcome = make_desk(tool, aliased).call(name, {"b": 1, "a": 2})
        assert outcome.invalid.hint == f"{name}: unexpected argument 'a'"


# The schema halves of the parser cases


@pytest.mark.parametrize("ticket_id", [1001, 1001.0, None, True, ["S1001"]])
def test_par_22_an_id_that_is_no_string_is_refused(ticket_id):
    outcome = make_desk().call("query_ticket", {"ticket_id": ticket_id})
    assert outcome.invalid.kind is InvalidKind.BAD_ARGUMENTS
    assert outcome.invalid.hint == "query_ticket: ticket_id must be of type string"


def test_par_22_a_string_of_digits_is_a_valid_id_that_is_not_found():
    outcome = make_desk().call("query_ticket", {"ticket_id": "1001"})
    assert outcome.ok and outcome.data == {"error": "ticket_not_found", "ticket_id": "1001"}


def test_par_23_leading_zeros_of_an_id_survive():
    assert query(make_desk(), "007")["ticket_id"] == "007"
    assert query(make_desk(), "7")["error"] == "ticket_not_found"


@pytest.mark.parametrize("arguments", [{}, {"id": "S1001"}])
def test_par_27_a_missing_argument_is_named(arguments):
    outcome = make_desk().call("query_ticket", arguments)
    assert outcome.invalid.kind is InvalidKind.BAD_ARGUMENTS
    assert "ticket_id" in outcome.invalid.hint


@pytest.mark.parametrize(
    ("tool", "arguments", "hint"),
    [
        ("query_ticket", {}, "query_ticket: missing argument ticket_id"),
        ("query_ticket", None, "query_ticket: arguments must be of type object"),
        (
            "update_ticket",
            {"ticket_id": "S1001", "new_status": "resolved"},
            "update_ticket: new_status must be one of open, pending, closed",
        ),
        ("reply", {"content": "x", "to": "y"}, "reply: unexpected argument 'to'"),
        ("close", {}, "unknown tool 'close'; tools: query_ticket, reply, update_ticket"),
    ],
)
def test_call_refusal_says_what_is_wrong_and_changes_nothing(tool, arguments, hint):
    desk = TicketDesk(TICKETS)
    assert desk.call(tool, arguments).invalid.hint == hint
    assert desk.store == Store(TICKETS)


# Aliases


def test_alias_runs_the_same_tool_under_other_names():
    desk = make_desk()
    assert desk.call("find", {"number": "S1001"}).data == query(desk)
    # The names of SET are swapped: its new_status is the id.
    swapped = {"new_status": "S1001", "ticket_id": "closed"}
    assert desk.call("set", swapped).data == {"result": "accepted"}
    assert desk.store.changes == [Change("S1001", "closed")]


def test_alias_validates_under_its_own_names():
    desk = make_desk()
    assert desk.call("find", {"ticket_id": "S1001"}).invalid.kind is InvalidKind.BAD_ARGUMENTS
    assert "number must be" in desk.call("find", {"number": 1}).invalid.hint
    assert not desk.call("set", {"ticket_id": "S1001", "new_status": "closed"}).ok


def test_alias_of_an_alias_still_reaches_the_function():
    again = FIND.alias("locate", {"number": "id"})
    assert again.arguments == {"id": "ticket_id"}
    assert make_desk(again).call("locate", {"id": "S1001"}).data["ticket_id"] == "S1001"
    assert QUERY_TICKET.schema["required"] == ["ticket_id"]  # and the first tool is as it was


# Copies (ENV-01, ENV-03), as a check that wrong desks are fed to


class LendsRecords(TicketDesk):
    """Wrong: the answer is the record itself."""

    def call(self, tool: str, arguments: Any) -> Outcome:
        return Outcome(ok=True, data=self.tools[tool].run(self.store, **arguments))


class CopiesOneLevel(LendsRecords):
    """Wrong: a copy that shares its lists with the record."""

    def call(self, tool: str, arguments: Any) -> Outcome:
        return Outcome(ok=True, data=dict(super().call(tool, arguments).data))


class SharesTickets(TicketDesk):
    """Wrong: the caller's records are the desk's."""

    def __init__(self, tickets: Mapping[str, Any]) -> None:
        super().__init__(tickets)
        self.store = Store(dict(tickets))


def check_copies(make: Callable[[Mapping[str, Any]], TicketDesk]) -> None:
    tickets = copy.deepcopy(TICKETS)
    for _ in range(3):
        desk = make(tickets)
        seen = query(desk)
        assert seen == TICKETS["S1001"]
        seen["status"] = "hacked"
        seen["history"].append("hacked")
        seen["history"][0]["text"] = "hacked"
        assert query(desk) == TICKETS["S1001"]
        desk.call("update_ticket", {"ticket_id": "S1001", "new_status": "closed"})
        assert query(desk)["status"] == "closed"
        assert tickets == TICKETS


def test_env_01_03_records_are_copied_on_the_way_in_and_out():
    check_copies(TicketDesk)


@pytest.mark.parametrize("wrong", [LendsRecords, CopiesOneLevel, SharesTickets])
def test_check_copies_rejects(wrong):
    with pytest.raises(AssertionError):
        check_copies(wrong)


# An update must not do the work of a query


def test_update_tells_only_accepted_or_refused():
    answers = set()
    for ticket_id in ("S1001", "007"):
        for status in ("open", "pending", "closed"):
            arguments = {"ticket_id": ticket_id, "new_status": status}
            answers.add(json.dumps(make_desk().call("update_ticket", arguments).data))
    assert answers == {'{"result": "accepted"}'}
    refused = {"ticket_id": "S9", "new_status": "open"}
    desk = make_desk()
    assert desk.call("update_ticket", refused).data == {"result": "refused"}
    assert desk.store == Store(TICKETS, [Change("S9", "open")])


# Order and names


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_ren_08_tools_are_in_one_order_however_they_are_given(order):
    desk = TicketDesk(TICKETS, [STANDARD_TOOLS[i] for i in order])
    assert list(desk.tools) == ["query_ticket", "reply", "update_ticket"]


def test_desk_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="must differ in name, got: reply, reply"):
        TicketDesk(TICKETS, (REPLY, FIND.alias("reply")))


def test_tool_may_be_a_callable_without_a_name():
    says_hi = partial(lambda word, store: {"word": word}, "hi")
    tool = Tool("say", "says", {"type": "object"}, says_hi)
    assert make_desk(tool).call("say", {}).data == {"word": "hi"}

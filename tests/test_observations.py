"""Observations: a fixed order, and each result cut once, by field, to a budget of tokens."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_lab.config import EnvConfig
from agentrl_lab.world import habits
from agentrl_lab.world.desk import STANDARD_TOOLS
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.observations import (
    ELLIPSIS,
    count_words,
    opening_messages,
    summarize,
    tool_message,
    tool_specs,
)
from agentrl_lab.world.tasks import make_task

Summarize = Callable[..., str]

characters = len
"""A toy tokenizer: one token per character."""


def spaced_words(text: str) -> int:
    """A toy tokenizer: split on spaces."""
    return len(text.split(" "))


COUNTS = {"characters": characters, "spaced_words": spaced_words, "count_words": count_words}
TOKENIZERS = pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS.keys())
LONG = {
    "ticket_id": "S1001",
    "history": "word " * 2000,
    "status": "pending",
    "error": "E42: not allowed for closed tickets",
}
RECORD = make_task("train", 0, 0).tickets[make_task("train", 0, 0).ticket_id]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NESTED = st.recursive(
    SCALARS | st.text(min_size=60),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FIELD_NAMES = st.sampled_from(["ticket_id", "status", "error", "more", "history"]) | st.text()
DATA = st.dictionaries(FIELD_NAMES, NESTED, max_size=12)


def test_count_words_counts_words_groups_of_three_digits_and_marks():
    # "S" "100" "1" ":" "open" "," "it" "'" "s" "7"
    assert count_words("S1001: open, it's 7") == 10
    assert count_words("") == count_words(" \n") == 0


# The law, as a check that wrong summaries are fed to


def check_summary(summarize: Summarize, data: dict[str, Any], budget: int, count: Any) -> None:
    before = copy.deepcopy(data)
    text = summarize(data, budget=budget, count_tokens=count)
    assert data == before  # the desk's own object is never cut
    assert count(text) <= budget
    short = json.loads(text)
    assert summarize(short, budget=budget, count_tokens=count) == text  # nothing is cut twice
    whole = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if count(whole) <= budget:
        assert short == data


@settings(max_examples=40)
@given(DATA, st.integers(16, 400))
def test_summarize_any_answer_fits_any_budget_and_stays(data, budget):
    # No exception to the law: the smallest form is "{}", two tokens, and the least budget is 16.
    check_summary(summarize, data, budget, count_words)


@pytest.mark.slow
@settings(max_examples=40)
@given(DATA, st.integers(16, 400))
def test_summarize_any_answer_fits_any_budget_of_characters(data, budget):
    check_summary(summarize, data, budget, characters)


@pytest.mark.slow
@settings(max_examples=40)
@given(DATA, st.integers(16, 400), st.randoms(use_true_random=False))
def test_summarize_order_of_the_answer_changes_nothing(data, budget, random):
    shuffled = list(data.items())
    random.shuffle(shuffled)
    assert summarize(dict(shuffled), budget=budget, count_tokens=count_words) == summarize(
        data, budget=budget, count_tokens=count_words
    )


@settings(max_examples=40)
@given(st.lists(NESTED, max_size=6))
def test_summarize_keeps_every_field_name_where_the_first_value_is_short(values):
    # {"ticket_id":"S1001","more":"a b c d e f"} is the least: 24 words, numbers and marks.
    data = {"ticket_id": "S1001"} | dict(zip("abcdef", values, strict=False))
    short = json.loads(summarize(data, budget=24, count_tokens=count_words))
    assert set(data) <= {*short, *short.get("more", "").split()}


WRONG_SUMMARIES: dict[str, Summarize] = {
    "whole": lambda data, budget, count_tokens: json.dumps(data),
    "cut_at_the_end": lambda data, budget, count_tokens: json.dumps(data)[:budget],
    "by_characters": lambda data, budget, count_tokens: json.dumps(
        {k: v[:budget] if isinstance(v, str) else v for k, v in data.items()}
    ),
    "clears_the_answer": lambda data, budget, count_tokens: data.clear() or "{}",
    "marks_each_pass": lambda data, budget, count_tokens: json.dumps(
        {"status": ("cut: " + data["status"])[:12]}
    ),
}


@pytest.mark.parametrize("wrong", WRONG_SUMMARIES.values(), ids=WRONG_SUMMARIES.keys())
def test_check_summary_rejects(wrong):
    data = {"status": "open, " * 30, "ticket_id": "S1001", "text": "a, " * 300}
    with pytest.raises((AssertionError, ValueError)):
        check_summary(wrong, data, 48, count_words)


# Cases of public bug reports


@pytest.mark.parametrize(("count", "least"), [(characters, 80), (spaced_words, 190)])
def test_ren_03_the_limit_counts_tokens_of_the_given_tokenizer(count, least):
    text = summarize({"result": "w " * 300}, budget=200, count_tokens=count)
    assert count(text) <= 200 and json.loads(text)["result"].endswith(ELLIPSIS)
    # Characters: {"result":"..."} takes 13 and the mark 1, so 186 are left: 93 words.
    assert least <= text.count("w ") <= 200


@TOKENIZERS
def test_ren_04_status_and_error_survive_in_both_key_orders(count):
    texts = {
        summarize(data, budget=200, count_tokens=count)
        for data in (LONG, dict(reversed(LONG.items())))
    }
    (text,) = texts
    assert count(text) <= 200
    short = json.loads(text)
    assert set(short) == set(LONG)
    assert {k: v for k, v in short.items() if k != "history"} == {
        k: v for k, v in LONG.items() if k != "history"
    }
    assert len(short["history"]) < len(LONG["history"])


@TOKENIZERS
def test_ren_06_a_second_pass_cuts_nothing_and_status_stays(count):
    check_summary(summarize, {"status": "ok", "text": "word " * 1000}, 200, count)
    text = summarize({"status": "ok", "text": "word " * 1000}, budget=200, count_tokens=count)
    assert json.loads(text)["status"] == "ok"


@pytest.mark.parametrize("budget", [48, 64, 100, 200])
def test_summarize_ticket_shows_id_status_payment_and_every_field_name(budget):
    assert EnvConfig().result_budget >= 48
    text = summarize(RECORD, budget=budget, count_tokens=count_words)
    short = json.loads(text)
    assert {name: short[name] for name in ("ticket_id", "status", "paid")} == {
        name: RECORD[name] for name in ("ticket_id", "status", "paid")
    }
    assert all(name in short or name in short["more"].split() for name in RECORD)


def test_ren_08_tool_specs_are_in_one_order_and_a_copy():
    specs = tool_specs(STANDARD_TOOLS)
    assert specs == tool_specs(reversed(STANDARD_TOOLS))
    names = [spec["function"]["name"] for spec in specs]
    assert names == ["query_ticket", "reply", "update_ticket"]
    specs[0]["function"]["parameters"]["properties"]["ticket_id"]["type"] = "integer"
    assert tool_specs(STANDARD_TOOLS) != specs


def test_ren_08_one_episode_is_the_same_bytes_whatever_the_hash_seed_and_tool_order():
    code = (
        "import dataclasses, json, sys\n"
        "from agentrl_lab.world import TicketEnv, tasks\n"
        "task = tasks.make_task('train', 0, 4)\n"
        "for tools in (task.tools, task.tools[::-1]):\n"
        "    task = dataclasses.replace(task, tools=tools)\n"
        "    env = TicketEnv(task_source=lambda _: task)\n"
        "    env.reset(seed=0)\n"
        "    arguments = json.dumps({'ticket_id': task.ticket_id})\n"
        "    env.step(f'<function=query_ticket>{arguments}</function>')\n"
        "    env.step('<function=x>{}</function>')\n"
        "    print(json.dumps([env.tools, [(m.role, m.content) for m in env.messages]]))\n"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    prompts = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | path | {"PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert len({line for lines in prompts for line in lines}) == 1


def test_ren_15_results_are_cut_when_they_arrive_and_never_later():
    # Our rule: the newest result is never the victim, and no older one is cut again, so every
    # earlier prompt stays a prefix of every later one. A full context truncates the episode.
    env = TicketEnv(config=EnvConfig(result_budget=150))
    env.reset(options={"index": 0})
    ticket_ids = [*env.task.tickets][:3]
    shown = []
    for ticket_id in ticket_ids:
        call = habits.Call("query_ticket", {"ticket_id": ticket_id})
        earlier = env.messages
        observation, *_ = env.step(env.codec.render(call))
        assert env.messages[: len(earlier)] == earlier
        result = observation.rpartition("\nsteps left: ")[0]
        assert 100 <= count_words(result) <= 150
        assert json.loads(result)["status"] == env.task.tickets[ticket_id]["status"]
        shown.append(observation)
    assert [m.content for m in env.messages if m.role == "tool"] == shown
    _, _, terminated, truncated, info = env.truncate()
    assert truncated and not terminated and info["stop_reason"] == "context_limit"


# The opening, and the answer


def test_opening_messages_are_system_then_request_with_the_steps_left():
    system, user = opening_messages("close S1001", 6)
    assert (system.role, user.role, user.content) == ("system", "user", "close S1001")
    assert system.content.endswith("steps left: 6")


def test_tool_message_keeps_the_steps_left_outside_of_the_budget():
    message = tool_message({"a": "b " * 99}, 2, budget=16, count_tokens=count_words)
    result, _, steps = message.content.partition("\n")
    assert (message.role, steps) == ("tool", "steps left: 2")
    assert count_words(result) <= 16


@pytest.mark.parametrize(
    ("budget", "names"), [(19, 2), (24, 2), (25, 3), (28, 3), (32, 3), (44, 4)]
)
def test_summarize_where_not_all_names_fit_the_values_that_decide_stay(budget, names):
    # {"ticket_id":"S1001","status":"open","paid":true}: 25 words, numbers and marks, 19 up to open.
    record = {**RECORD, "ticket_id": "S1001", "status": "open", "paid": True}
    short = json.loads(summarize(record, budget=budget, count_tokens=count_words))
    assert list(short)[:3] == ["ticket_id", "status", "paid"][: min(names, 3)]
    assert len(short) >= names and all(short[n] == record[n] for n in short if n != "more")


# Answers to invalid actions


def invalid(feedback: str, text: str) -> str:
    env = TicketEnv(config=EnvConfig(feedback=feedback))
    env.reset(options={"index": 0})
    env.step(text)
    return env.messages[-1].content.splitlines()[0]


@pytest.mark.parametrize(
    ("feedback", "answer"),
    [
        ("silent", "{}"),
        ("code", '{"error":"bad_arguments"}'),
        ("hint", '{"error":"bad_arguments","hint":"reply: missing argument content"}'),
        ("schema", '{"error":"bad_arguments","call_it":"reply(content)"}'),
    ],
)
def test_feedback_says_as_much_as_it_is_set_to(feedback, answer):
    assert invalid(feedback, "<function=reply>{}</function>") == answer


def test_schema_of_an_unknown_tool_is_that_of_all_tools():
    for text in ("hello", "<function=close>{}</function>"):
        named = json.loads(invalid("schema", text))["call_it"]
        assert named == (
            "query_ticket(ticket_id); reply(content); update_ticket(ticket_id, new_status)"
        )


def test_other_feedback_is_refused():
    with pytest.raises(ValueError, match="did you mean 'silent'"):
        EnvConfig(feedback="silence")

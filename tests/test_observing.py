"""Views of the desk, what a cut leaves, blocks read back from ids, paired differences."""

from __future__ import annotations

import json
import time

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.learner.policy import load_policy
from agentrl_lab.records import Message
from agentrl_lab.workbook.lessons.cutting import (
    LOST,
    NAME,
    PART,
    PIECE,
    WHOLE,
    as_json,
    by_field,
    keep_end,
    keep_start,
    survival,
)
from agentrl_lab.workbook.lessons.observing import (
    TEMPLATES,
    Estimate,
    View,
    ViewedEnv,
    best_possible,
    paired_difference,
    play_view,
    with_tools,
    without_rules,
    without_steps,
)
from agentrl_lab.workbook.lessons.observing_pages import (
    blocks_of,
    blocks_page,
    survival_page,
    token_bars,
)
from agentrl_lab.workbook.plots import ranges
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.observations import SYSTEM_PROMPT, count_words
from agentrl_lab.world.tasks import make_task

ANSWER = {"id": "S1", "status": "open", "paid": False, "note": 'a "quoted" one', "tags": ["x"]}


@pytest.fixture(scope="module")
def policy():
    return load_policy("tiny-trained")


def query(env: TicketEnv) -> str:
    call = {"ticket_id": env.task.ticket_id}
    return f"<function=query_ticket>{json.dumps(call)}</function>"


# Cutting


@pytest.mark.parametrize("cut", [keep_start, keep_end, by_field], ids=lambda cut: cut.__name__)
@pytest.mark.parametrize("count", [len, count_words])
def test_every_cut_holds_its_budget_and_keeps_all_when_all_fits(cut, count):
    for budget in range(0 if cut is not by_field else 16, 90, 7):
        assert count(cut(ANSWER, budget, count)) <= budget
    assert json.loads(cut(ANSWER, 500, count)) == ANSWER


def test_naive_cuts_keep_as_much_as_fits_at_their_end():
    text = as_json(ANSWER)
    assert keep_start(ANSWER, 20, len) == text[:20] and keep_end(ANSWER, 20, len) == text[-20:]
    assert keep_end(ANSWER, 0, len) == ""


def test_survival_by_hand():
    assert set(survival(ANSWER, as_json(ANSWER)).values()) == {WHOLE}
    # {"id":"S1","status":"open","paid":fa
    assert list(survival(ANSWER, as_json(ANSWER)[:36]).values()) == [WHOLE, WHOLE, PART, LOST, LOST]
    assert survival(ANSWER, '{"id":"S1","status":"')["status"] == NAME
    cut = '{"id":"S1","note":"a \\"qu…","more":"status tags"}'
    assert list(survival(ANSWER, cut).values()) == [WHOLE, NAME, LOST, PART, NAME]
    assert list(survival(ANSWER, 'uoted\\" one","tags":["x"]}').values()) == [
        LOST, LOST, LOST, PIECE, WHOLE,
    ]  # fmt: skip
    assert set(survival(ANSWER, "").values()) == {LOST}


def test_survival_a_value_cut_at_its_last_mark_belongs_to_no_other_field():
    text = as_json({"a": "x", "b": "y", "c": "z"})  # {"a":"x","b":"y","c":"z"}
    assert text[15:] == '","c":"z"}'
    assert list(survival(json.loads(text), text[15:]).values()) == [LOST, PIECE, WHOLE]
    assert list(survival(json.loads(text), text[16:]).values()) == [LOST, LOST, WHOLE]


def test_survival_a_nested_field_of_the_same_name_is_not_the_field():
    assert survival({"name": "A", "who": {"name": "B"}}, '{"who":{"name":"B"}}')["name"] != WHOLE


# Views


def played(view: View, turns: int = 2) -> ViewedEnv:
    env = ViewedEnv(view, "validation")
    env.reset(options={"index": 0})
    for _ in range(turns):
        env.step(query(env))
    return env


def test_the_default_view_is_the_environment_itself():
    env = TicketEnv("validation")
    env.reset(options={"index": 0})
    for _ in range(2):
        env.step(query(env))
    other = played(View())
    assert other.messages == env.messages and other.outcome == env.outcome
    assert other.score == env.score


def test_observation_of_step_and_reset_is_what_the_view_shows():
    env = ViewedEnv(View(message=lambda m: Message(m.role, "x")), "validation")
    assert env.reset(options={"index": 0})[0] == "x" and env.step(query(env))[0] == "x"


def test_a_view_changes_what_is_read_and_nothing_that_happens():
    shown, blind = played(View()), played(View(result=lambda answer, budget, count: "?"))
    assert blind.messages[-1].content == "?\nsteps left: 4"
    assert blind.outcome == shown.outcome and blind.desk.store == shown.desk.store


def test_a_view_gets_the_raw_answer_and_the_views_budget():
    env = played(View(result=keep_start, budget=1000))
    result = env.messages[-1].content.partition("\n")[0]
    assert result == as_json(env.task.tickets[env.task.ticket_id])
    env.step("nonsense")
    assert '"error":"no_call"' in env.messages[-1].content


def test_without_steps_and_without_rules_leave_the_rest():
    env = played(View(message=without_steps))
    assert not any("steps left" in message.content for message in env.messages)
    assert env.messages[0].content.startswith(SYSTEM_PROMPT)
    system, user, *_ = played(View(message=without_rules)).messages
    assert system.content == "One tool call a message. steps left: 6"
    assert user == env.messages[1]


def test_an_unknown_place_of_the_tools_is_refused():
    with pytest.raises(ValueError, match="did you mean 'last'"):
        View(tools="lest")


def test_templates_move_the_tools_and_keep_every_token(policy):
    env = played(View(), turns=0)
    prompts = {}
    for place in TEMPLATES:
        prompts[place] = with_tools(policy.tokenizer, place).opening(env.messages, env.tools)
    assert prompts["after the rules"] == policy.tokenizer.opening(env.messages, env.tools)
    assert sorted(prompts["last"]) == sorted(prompts["after the rules"])
    roles = {n: [b.role for b in blocks_of(policy.tokenizer, p)] for n, p in prompts.items()}
    assert roles == {
        "after the rules": ["system", "tools", "user", "assistant"],
        "last": ["system", "user", "tools", "assistant"],
        "nowhere": ["system", "user", "assistant"],
    }


def test_play_view_same_seed_same_episodes_and_the_policy_is_left_alone(policy):
    template = policy.tokenizer.tokenizer.chat_template
    first, again = (play_view(policy, View(), range(6), temperature=0.7) for _ in range(2))
    assert [t.ids for t in first] == [t.ids for t in again]
    play_view(policy, View(tools="last"), range(2), temperature=0.0)
    assert policy.tokenizer.tokenizer.chat_template == template


def test_the_default_view_is_what_the_policy_was_trained_on(policy):
    seen = play_view(policy, View(), range(32), temperature=0.0)
    assert sum(t.outcome.success for t in seen) >= 28
    assert EnvConfig().result_budget == View().budget


# The best that any policy can do

TICKETS = [make_task("validation", 0, index).tickets for index in range(12)]
TICKETS = [ticket for tickets in TICKETS for ticket in tickets.values()]


@pytest.mark.parametrize(
    ("view", "success"),
    [
        # What each lack costs is worked out by hand in tests/test_information.py.
        (View(), 1.0),
        (View(result=keep_start), 1.0),
        (View(result=lambda answer, budget, count: f'{{"status":"{answer["status"]}"}}'), 0.8),
        (View(result=lambda answer, budget, count: as_json({"paid": answer["paid"]})), 0.716667),
        (View(result=keep_end), 0.516667),
        (View(message=without_rules, tools="nowhere"), 1.0),
    ],
)
def test_best_possible_depends_on_the_two_fields_that_survive(view, success):
    assert best_possible(view, TICKETS, count_words) == pytest.approx(success, abs=1e-6)


# Differences


def test_paired_difference_by_hand():
    # 10 tasks: 1 won, 4 lost. d = -3 / 12 = -0.25; s = sqrt(5 + 1 - 9 / 12) / 12 = 0.190941
    before = [True] * 6 + [False] * 4
    changed = [False] * 4 + [True] * 2 + [True] + [False] * 3
    found = paired_difference(changed, before)
    assert found.value == pytest.approx(-0.3)
    assert (found.low, found.high) == pytest.approx((-0.25 - 0.374244, -0.25 + 0.374244), abs=1e-5)


def test_paired_difference_of_nothing_is_not_certain():
    found = paired_difference([True] * 98, [True] * 98)
    # s = sqrt(1) / 100
    assert found == pytest.approx(Estimate(0.0, -0.0196, 0.0196))


@pytest.mark.parametrize("sizes", [(3, 4), (0, 0)])
def test_paired_difference_needs_the_same_tasks(sizes):
    with pytest.raises(ValueError, match="the same tasks twice, got"):
        paired_difference(*([True] * size for size in sizes))


# Pages and pictures


def test_blocks_of_count_every_token_once_and_say_who_speaks(policy):
    env = played(View(), turns=1)
    tokenizer = policy.tokenizer
    ids = tokenizer.opening(env.messages[:2], env.tools)
    ids += tokenizer.encode_action(env.messages[2].content)
    ids += tokenizer.after_action(env.messages[3], ended=True)
    blocks = blocks_of(tokenizer, ids)
    assert sum(block.tokens for block in blocks) == len(ids)
    assert [block.role for block in blocks] == [
        "system", "tools", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert [blocks[at].text for at in (2, 3, 4)] == [m.content for m in env.messages[1:4]]


def test_pages_escape_what_they_show(policy):
    ids = policy.tokenizer.opening((Message("system", "<script>"), Message("user", "<b>")), [])
    assert "<script>" not in blocks_page(blocks_of(policy.tokenizer, ids)).html
    page = survival_page({"<i>": "<u>"}, {"naive": '{"<i>":"<u>"}'}, len)
    assert "<i>" not in page.html and "<u>" not in page.html
    assert page.sentence == "Of 1 fields, whole values survive: naive 1 (<i>)."


def test_survival_page_says_state_in_words_and_in_a_mark():
    page = survival_page(ANSWER, {"naive": as_json(ANSWER)[:36], "none": ""}, len)
    assert "◐ name, part of the value" in page.html and "36 tokens" in page.html
    assert "naive 2 (id, status); none 0 (none)" in page.sentence


def test_pictures_say_their_numbers_and_are_drawn_fast(policy):
    points = {"a": Estimate(0.5, 0.4, 0.6), "b": Estimate(-0.25, -0.3, -0.2)}
    shown = ranges({"greedy": points, "sampled": points}, "success (share)")
    assert shown.sentence == (
        "success (share): a 0.50 (greedy), 0.50 (sampled); b -0.25 (greedy), -0.25 (sampled)."
    )
    blocks = blocks_of(policy.tokenizer, policy.tokenizer.opening((Message("system", "x"),), []))
    total = sum(block.tokens for block in blocks)
    assert token_bars({"turn 1": blocks}).sentence.endswith(f"turn 1 {total}.")
    times = []
    for _ in range(3):
        start = time.process_time()
        ranges({"greedy": points, "sampled": points}, "success (share)").png()
        times.append(time.process_time() - start)
    assert min(times) < 1.0  # a floor that no busy machine misses; the lesson wants 0.2 s

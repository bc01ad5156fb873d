"""Rewards: the presets by hand, sums that agree, caps that hold, and no way to farm them."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, ConclusionKind, StopReason, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.rewards import (
    PRESETS,
    RewardBreakdown,
    RewardSpec,
    RewardTerm,
    preset,
    reward_of,
)
from agentrl_lab.world.tasks import Task, make_task, make_ticket

ALL_PRESETS = pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS.keys())
PAID, UNPAID, CLOSED, MISSING, STATUS = (
    next(task for task in (make_task("train", 0, i) for i in range(500)) if task.kind is kind)
    for kind in TaskKind
)
TASKS = (PAID, UNPAID, CLOSED, MISSING, STATUS)
I = "hm"  # noqa: E741 one invalid action
USEFUL = RewardTerm("useful", 0.1, lambda facts: facts.useful_queries, cap=0.2, process=True)
OUTCOME = PRESETS["outcome"].terms[0]
BONUS = RewardSpec("bonus", (OUTCOME, USEFUL))


def acts(task: Task) -> dict[str, Call | str]:
    """By letter: q query, o and digits other tickets, u p updates, r right w wrong n no answer."""
    other = next(name for name in task.tickets if name != task.ticket_id)
    wrong = next(kind for kind in habits.SENTENCES if kind is not task.expected)
    sentences = habits.SENTENCES
    return {
        "q": habits.query(task),
        "o": habits.query(replace(task, ticket_id=other)),
        "u": habits.update(task),
        "p": habits.update(task, "pending"),
        "r": Call("reply", {"content": sentences[task.expected][0].format(id=task.ticket_id)}),
        "w": Call("reply", {"content": sentences[wrong][0].format(id=task.ticket_id)}),
        "n": Call("reply", {"content": "Please wait."}),
        "I": I,
        **{n: habits.query(replace(task, ticket_id=f"S000{n}")) for n in "123456"},
    }


def play(
    spec: RewardSpec, task: Task, letters: str, make: Callable[..., TicketEnv] = TicketEnv
) -> tuple[list[float], TicketEnv]:
    """Rewards per turn, and the environment after them."""
    env = make(reward=spec, task_source=lambda _: task)
    env.reset(options={"index": 0})
    rewards = []
    for letter in letters:
        if env.stop_reason is None:
            act = acts(task)[letter]
            rewards.append(env.step(act if act == I else env.codec.render(act))[1])
    return rewards, env


def total(spec: RewardSpec | str, task: Task, letters: str) -> float:
    return sum(play(preset(spec) if isinstance(spec, str) else spec, task, letters)[0])


# The presets by hand


@pytest.mark.parametrize(
    ("task", "letters", "worth"),
    [
        (PAID, "qur", 1.0),  # closed as asked, and the reply confirms it
        (PAID, "quw", -0.8),  # wrong last reply
        (PAID, "qr", -0.8),  # "closed" without the change
        (PAID, "quqqqq", -1.0),  # out of turns
        (PAID, "III", -1.0),
        (UNPAID, "qr", 1.0),
        (UNPAID, "qur", -0.8),
    ],
)
def test_outcome_d1_by_hand(task, letters, worth):
    assert total("outcome", task, letters) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("task", "letters", "worth"),
    [
        (PAID, "qur", 1.35),  # 1 + 0.1 query + 0.05 goal call + 0.2 clear reply
        (PAID, "ur", 1.25),  # no query
        (PAID, "qu", 0.15),  # 0.1 + 0.05 so far
        (PAID, "qun", -0.65),  # -0.8 + 0.1 + 0.05, "please wait" is no conclusion
        (PAID, "quw", -0.45),  # -0.8 + 0.1 + 0.05 + 0.2: clear, and wrong
        (MISSING, "qr", 1.35),
    ],
)
def test_process_d2_by_hand(task, letters, worth):
    assert total("process", task, letters) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("task", "letters", "worth"),
    [
        (PAID, "qur", 1.0),  # three turns: no bonus
        (PAID, "ur", 1.0),  # two turns: no bonus either (H2)
        (UNPAID, "r", 1.1),  # only an end in one turn is paid: 1 + 0.1 * (2 - 1)
        (PAID, "quw", 1.0),  # the reply is never read (H10)
        (PAID, "uqqqqq", 0.5),  # done, no reply
        (PAID, "qr", -1.0),  # not done
        (UNPAID, "III", 0.5),  # nothing was to be done
    ],
)
def test_printed_d5_by_hand(task, letters, worth):
    assert total("printed", task, letters) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("task", "letters", "worth"),
    [
        (PAID, "qur", 1.08),  # 1 + 0.05 quick + 0.03 clean
        (UNPAID, "qr", 1.08),
        (PAID, "qour", 1.055),  # one turn more: quick is half, 0.025
        (PAID, "qoour", 0.95),  # two turns more: 0; one repeat: -0.05, not clean
        (PAID, "ooooqu", -1.15),  # -1 out of turns, three repeats
        (PAID, "III", -1.30),  # -1, three invalid actions -0.15, three strikes -0.15
    ],
)
def test_shaped_d3_by_hand(task, letters, worth):
    assert total("shaped", task, letters) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("letters", "ceiling", "part"),
    [
        # 1 invalid: 1 + 0.025 quick - 0.05 = 0.975, above 0.9
        ("Iqur", 0.9, -0.075),
        # 2 invalid: 1 - 0.10 = 0.90, above 0.8
        ("IIqur", 0.8, -0.10),
        # 3 invalid: 1 - 0.15 = 0.85, above 0.7
        ("IqIuIr", 0.7, -0.15),
    ],
)
def test_shaped_c3_each_invalid_action_lowers_the_ceiling_by_a_tenth(letters, ceiling, part):
    rewards, env = play(PRESETS["shaped"], PAID, letters)
    assert env.outcome.success
    assert sum(rewards) == pytest.approx(ceiling)
    assert env.score.parts["ceiling"] == pytest.approx(part)


def test_shaped_c3_the_ceiling_never_lifts_a_score():
    # -0.8 - 0.05 = -0.85 stays: the ceiling is 0.9.
    assert total("shaped", PAID, "Iqw") == pytest.approx(-0.85)


# Laws, as checks that wrong environments and wrong specs are fed to


def check_sums(spec: RewardSpec, task: Task, letters: str, make: Callable[..., TicketEnv]) -> None:
    """REW-08: one episode return everywhere, and parts that sum to it."""
    env = make(reward=spec, task_source=lambda _: task)
    env.reset(options={"index": 0})
    paid: dict[str, float] = {}
    rewards = []
    for letter in letters:
        if env.stop_reason is None:
            act = acts(task)[letter]
            _, reward, *_, info = env.step(act if act == I else env.codec.render(act))
            assert reward == pytest.approx(sum(info["reward_parts"].values()))
            rewards.append(reward)
            paid = {k: v + paid.get(k, 0.0) for k, v in info["reward_parts"].items()}
    score = spec.score(env.outcome)
    assert sum(rewards) == pytest.approx(score.total) and env.score == score
    assert paid == pytest.approx(dict(score.parts))


STARTS_RICH = RewardSpec("rich", (OUTCOME, RewardTerm("right", 0.5, lambda o: o.state_right)))
LETTERS = st.lists(st.sampled_from("qoupIqoupIrwn"), min_size=1, max_size=6).map("".join)


@settings(max_examples=60)
@given(st.sampled_from([*PRESETS.values(), BONUS, STARTS_RICH]), st.sampled_from(TASKS), LETTERS)
def test_rewards_of_turns_sum_to_the_score_of_the_episode(spec, task, letters):
    check_sums(spec, task, letters, TicketEnv)


class PaysTwice(TicketEnv):
    """Wrong: reward is added in two places."""

    def _pay(self) -> float:
        return super()._pay() * 2


class PaysTheWholeScore(TicketEnv):
    """Wrong: each turn is paid all that was earned so far."""

    def _pay(self) -> float:
        super()._pay()
        return self._score.total


class DropsParts(TicketEnv):
    """Wrong: the last reward is not broken down."""

    def _pay(self) -> float:
        reward = super()._pay()
        self.breakdown = RewardBreakdown({})
        return reward


@pytest.mark.parametrize("wrong", [PaysTwice, PaysTheWholeScore, DropsParts])
def test_check_sums_rejects(wrong):
    with pytest.raises(AssertionError):
        check_sums(PRESETS["process"], PAID, "qur", wrong)


def test_rew_08_a_return_of_1_1_is_1_1_everywhere():
    rewards, env = play(BONUS, PAID, "qur")
    assert rewards == pytest.approx([0.1, 0.0, 1.0])
    assert env.score.total == pytest.approx(1.1)
    assert sum(env.score.parts.values()) == pytest.approx(1.1)


def check_three_strikes_never_milder(spec: RewardSpec) -> None:
    """H7: after the same start, failing fast pays at most what idling to the step limit pays.

    Idling is a new valid call each turn: who repeats a call is charged for that, not for the end.
    """
    for task, start in itertools.product(TASKS, ["", "q", "u", "qu", "qp", "Iq", "qqq", "oq"]):
        fast = play(spec, task, start + "III")[1]
        slow = play(spec, task, (start + "123456")[:6])[1]
        assert (fast.stop_reason, slow.stop_reason) == ("three_strikes", "step_limit")
        # the same facts, but for the reason
        as_limit = replace(fast.outcome, stop=StopReason.STEP_LIMIT)
        assert fast.score.total <= spec.score(as_limit).total + 1e-9
        assert fast.score.total <= slow.score.total + 1e-9


@ALL_PRESETS
def test_h7_three_strikes_are_never_milder_than_the_step_limit(spec):
    # printed pays both alike: 0.5 where nothing is left to do, -1 else.
    check_three_strikes_never_milder(spec)


def test_strike_extra_is_paid_where_three_strikes_end_an_episode_and_nowhere_else():
    plain, milder = (reward_of(EnvConfig(reward="outcome", strike_extra=x)) for x in (0.0, 0.8))
    worth = {
        letters: total(milder, PAID, letters) - total(plain, PAID, letters)
        for letters in ("III", "qr", "qqqqqq", "IqI")
    }
    assert worth == pytest.approx({"III": 0.8, "qr": 0.0, "qqqqqq": 0.0, "IqI": 0.0})
    with pytest.raises(AssertionError):
        check_three_strikes_never_milder(milder)


def test_check_three_strikes_rejects_a_mild_penalty():
    def mild(facts: EpisodeOutcome) -> float:
        strikes = facts.stop is StopReason.THREE_STRIKES
        return -0.5 if strikes else OUTCOME.measure(facts)

    with pytest.raises(AssertionError):
        check_three_strikes_never_milder(RewardSpec("mild", (RewardTerm("outcome", 1.0, mild),)))


@ALL_PRESETS
def test_truncation_is_no_end_so_it_costs_nothing(spec):
    _, env = play(spec, PAID, "q")
    before = env.score.total
    _, reward, terminated, truncated, _ = env.truncate()
    assert (terminated, truncated) == (False, True)
    assert reward == pytest.approx(0.0) and env.score.total == pytest.approx(before)


# Cases of public bug reports


def test_rew_01_a_bonus_is_bounded_however_many_calls():
    task = six_tickets()
    env = TicketEnv(reward=BONUS, task_source=lambda _: task)
    env.reset(options={"index": 0})
    calls = [Call("query_ticket", {"ticket_id": name}) for name in task.tickets]
    rewards = [env.step(env.codec.render(call))[1] for call in calls]
    # six of six tickets: 0.1, 0.1, then the cap; the last turn also pays -1 for no reply
    assert rewards == pytest.approx([0.1, 0.1, 0.0, 0.0, 0.0, -1.0])
    assert env.score.parts["useful"] == pytest.approx(0.2)


def six_tickets() -> Task:
    rng = random.Random(0)
    names = [PAID.ticket_id, *(f"S000{i}" for i in range(5))]
    return replace(PAID, tickets={name: make_ticket(name, rng) for name in names})


def test_rew_02_a_repeated_query_is_paid_once():
    rewards, env = play(BONUS, PAID, "qqqqq")
    assert rewards == pytest.approx([0.1, 0.0, 0.0, 0.0, 0.0])
    assert env.outcome.useful_queries == 1


@ALL_PRESETS
def test_rew_02_two_turns_that_solve_beat_six_that_repeat(spec):
    assert total(spec, UNPAID, "qr") > total(spec, UNPAID, "qqqqqq")
    assert total(spec, PAID, "ur") > total(spec, PAID, "uqqqqq")


def test_rew_07_other_paths_to_the_goal_are_paid_by_the_final_state():
    for letters in ("qur", "ur", "uur"):
        assert total("outcome", PAID, letters) == pytest.approx(1.0)
    # What differs are process rewards and the charge for a repeat.
    assert total("process", PAID, "qur") - total("process", PAID, "ur") == pytest.approx(0.1)
    # 1 + 0.05 quick - 0.05 repeat, not clean
    assert total("shaped", PAID, "uur") == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("cap", [math.inf, 0.2])
def test_rew_10_a_reward_that_is_not_finite_is_refused_by_name(bad, cap):
    term = RewardTerm("odd", 1.0, lambda facts: bad if facts.turns == 2 else 0.0, cap=cap)
    with pytest.raises(ValueError, match="reward term 'odd' must be finite, got"):
        play(RewardSpec("odd", (OUTCOME, term)), PAID, "qu")


def test_rew_11_a_saved_episode_gives_the_reward_it_gave_live():
    rewards, env = play(PRESETS["shaped"], PAID, "qur")
    actions = [acts(PAID)[letter] for letter in "qur"]
    saved = json.dumps({
        "task": [PAID.split, PAID.seed, PAID.index],
        "actions": [message.content for message in env.messages if message.role == "assistant"],
    })  # fmt: skip
    loaded = json.loads(saved)
    assert [env.codec.parse(text).calls for text in loaded["actions"]] == [(a,) for a in actions]
    again = TicketEnv(loaded["task"][0], loaded["task"][1])
    again.reset(options={"index": loaded["task"][2]})
    assert [again.step(text)[1] for text in loaded["actions"]] == rewards
    assert again.score.total == pytest.approx(1.08) and again.outcome == env.outcome


# Terms and specs


@given(st.floats(-2, 2), st.floats(-10, 10), st.floats(0, 3))
def test_term_is_never_larger_than_its_cap(weight, measure, cap):
    value = RewardTerm("t", weight, lambda _: measure, cap=cap).value(EpisodeOutcome(PAID.kind))
    assert abs(value) <= cap
    assert value == pytest.approx(weight * measure) or abs(value) == cap


@pytest.mark.parametrize("names", [("a", "a"), ("a", "ceiling")])
def test_spec_with_two_parts_of_one_name_is_refused(names):
    with pytest.raises(ValueError, match="must differ in name"):
        RewardSpec("twice", tuple(RewardTerm(name, 1.0, lambda _: 0.0) for name in names))


def test_preset_unknown_name_offers_the_nearest():
    with pytest.raises(ValueError, match="'shapd': did you mean 'shaped'"):
        preset("shapd")
    assert {EnvConfig(reward=name).reward for name in PRESETS} == set(PRESETS)


def test_conclusions_that_count_as_clear():
    clear = {
        kind
        for kind in habits.SENTENCES
        if total("process", PAID, "q") < total_of_reply("process", kind)
    }
    assert clear == {*habits.SENTENCES} - {ConclusionKind.NONE}


def total_of_reply(name: str, kind: ConclusionKind) -> float:
    env = TicketEnv(config=EnvConfig(reward=name), task_source=lambda _: PAID)
    env.reset(options={"index": 0})
    text = habits.SENTENCES[kind][0].format(id=PAID.ticket_id)
    env.step(env.codec.render(Call("reply", {"content": text})))
    return env.score.parts["clear_reply"]


# What calls bring by themselves (F1)


CALLS = [
    ({"call_bonus": 0.1}, "qqqqqq", 6 * 0.1 - 1.0),  # H5: querying for ever earns -0.4
    ({"call_bonus": 0.1}, "qur", 1.0 + 3 * 0.1),
    ({"call_bonus": 0.1, "call_cap": 0.2}, "qur", 1.0 + 0.2),
    ({"call_bonus": 0.1, "call_cap": 0.2}, "qqqqqq", 0.2 - 1.0),
    ({"repeat_charge": 0.05}, "qqqur", 1.0 - 2 * 0.05),
    ({"call_bonus": 1.0, "repeat_charge": 0.5}, "qqur", 1.0 + 4.0 - 0.5),
    ({"call_bonus": 0.1}, "qIur", 1.0 + 3 * 0.1),  # an invalid action is no answered call
]


@pytest.mark.parametrize(("given", "letters", "score"), CALLS)
def test_calls_by_hand(given: dict[str, float], letters: str, score: float) -> None:
    spec = reward_of(EnvConfig(reward="outcome", **given))
    rewards, _ = play(spec, PAID, letters)
    assert sum(rewards) == pytest.approx(score)


def test_a_charge_alone_is_escaped_by_changing_to_and_fro() -> None:
    """A repeat that changes something is none, so open and pending in turn cost nothing."""
    spec = reward_of(EnvConfig(reward="outcome", call_bonus=1.0, repeat_charge=1.0))
    honest, _ = play(spec, PAID, "qur")
    queries, _ = play(spec, PAID, "qqqur")
    to_and_fro, _ = play(spec, PAID, "qpupur")
    assert sum(queries) == pytest.approx(sum(honest))  # each repeat brings 1 and costs 1
    assert sum(to_and_fro) > sum(honest)


@pytest.mark.parametrize("name", ["call_bonus", "call_cap", "repeat_charge"])
@pytest.mark.parametrize("value", [-0.1, 1e308, math.inf, math.nan])
def test_calls_refuse_what_is_no_price(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be 0 to 1e6"):
        EnvConfig(**{"call_bonus": 0.1, name: value})


def test_without_them_the_preset_is_paid_as_it_is() -> None:
    assert reward_of(EnvConfig(reward="process")) == PRESETS["process"]


def test_a_cap_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="call_cap caps call_bonus, which is 0"):
        EnvConfig(call_cap=0.1)

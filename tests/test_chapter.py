"""The printed environment has every defect that the lessons look for, with its numbers (H1-H10)."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import Call, ConclusionKind, ParseFailure
from agentrl_lab.world import habits
from agentrl_lab.world.chapter import (
    ANSWER,
    CALLS,
    CLOSE,
    HONEST,
    MISWRITE,
    QUERY,
    TICKET_ID,
    PrintedTicketEnv,
    all_episodes,
    compute_reward,
    run_episode,
    until_done,
    until_reply,
)
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.parser import CODECS, one_call
from agentrl_lab.world.plans import best_plan
from agentrl_lab.world.rewards import preset
from agentrl_lab.world.tasks import Task, make_task

LOOPS = pytest.mark.parametrize("loop", [until_done, until_reply])


def fresh(calls: tuple[Call, ...], loop: Callable, **how: float) -> float:
    return run_episode(PrintedTicketEnv(), calls, loop, **how)


# H1


def test_h1_stop_at_the_done_flag_only_an_answer_before_the_change_earns_1():
    assert fresh(HONEST, until_done) == 0.5
    assert fresh((ANSWER, CLOSE), until_done) == 1.0
    best = [calls for calls, reward in all_episodes(until_done) if reward == 1.0]
    assert best and all(calls.index(ANSWER) < calls.index(CLOSE) for calls in best)
    assert max(reward for _, reward in all_episodes(until_done)) == 1.0


def test_h1_stop_at_the_reply_honest_earns_1():
    assert fresh(HONEST, until_reply) == 1.0
    assert fresh((ANSWER, CLOSE), until_reply) == -1.0


# H2


@LOOPS
def test_h2_the_step_bonus_is_never_paid(loop):
    # done and replied: two steps at least, and 0.1 * max(0, 2 - 2) = 0
    assert {round(reward, 9) for _, reward in all_episodes(loop)} == {-1.0, 0.5, 1.0}


def test_h2_one_step_would_be_paid():
    env = PrintedTicketEnv()
    env.done = env.replied = True
    env.steps = 1
    assert compute_reward(env) == pytest.approx(1.1)


# H3


@LOOPS
def test_h3_a_query_is_worth_nothing(loop):
    blind = [call for call in CALLS if call != QUERY]
    best, best_blind = (max(r for _, r in all_episodes(loop, calls=c)) for c in (CALLS, blind))
    assert best == best_blind == 1.0


def test_h3_every_episode_has_the_same_ticket():
    assert {str(PrintedTicketEnv().step(QUERY)) for _ in range(20)} == {
        str({"ticket_id": "S1001", "status": "open", "paid": True})
    }


def test_h3_a_tamper_test_accuses_a_perfect_policy():
    # A policy that never errs here need not read an answer; so lies about it change nothing.
    class Tampered(PrintedTicketEnv):
        def step(self, call):
            answer = super().step(call)
            return {**answer, "status": "closed"} if call == QUERY else answer

    assert run_episode(Tampered(), HONEST, until_reply) == fresh(HONEST, until_reply) == 1.0


# H4


def test_h4_reset_leaves_the_database_as_it_was():
    env = PrintedTicketEnv()
    assert [run_episode(env, HONEST, until_reply) for _ in range(3)] == [1.0, -1.0, -1.0]


# H5


@LOOPS
def test_h5_a_tenth_for_every_call_pays_for_padding_and_querying_for_ever_is_a_trap(loop):
    episodes = list(all_episodes(loop, per_call=0.1))
    best = max(reward for _, reward in episodes)
    assert best == pytest.approx(1.6)  # 1 + 6 * 0.1
    winners = [calls for calls, reward in episodes if reward > best - 1e-9]
    assert (QUERY, QUERY, QUERY, QUERY) in [calls[:4] for calls in winners]
    assert all(len(calls) == 6 for calls in winners)
    assert fresh((QUERY,) * 6, loop, per_call=0.1) == pytest.approx(-0.4)  # -1 + 6 * 0.1


def test_h5_honest_earns_less_than_padding():
    assert fresh(HONEST, until_reply, per_call=0.1) == pytest.approx(1.3)


# H6, in the standard world: in the printed one nothing varies, so no tampering can show anything

Answer = Mapping[str, Any]
Tamper = Callable[[Answer, Answer], Answer]


class LeakyEnv(TicketEnv):
    """The desk with a debug field in the answer of a query (F2); `tamper` may replace answers.

    Args:
        tamper: (the true answer, the answer about another task's ticket) -> what is shown.
    """

    def __init__(self, task: Task, other: Task, tamper: Tamper) -> None:
        # 200 tokens as in the chapter (B3): within 48 the summary would drop the field.
        super().__init__(config=EnvConfig(result_budget=200), task_source=lambda _: task)
        self.other, self.tamper = other, tamper

    def _execute(self, call: Any) -> Any:
        invalid, data, ends = super()._execute(call)
        if not invalid and call.tool == "query_ticket":
            other = _with_leak(_record(self.other), self.other)
            data = self.tamper(_with_leak(data, self.task), other)
        return invalid, data, ends


def _record(task: Task) -> Answer:
    return task.tickets.get(task.ticket_id, {"error": "ticket_not_found"})


def _with_leak(data: Answer, task: Task) -> Answer:
    return {**data, "expected_action": task.expected.value}


def reads_the_ticket(answer: Answer) -> str:
    """Decides by what the desk knows."""
    if "error" in answer:
        return "not_found"
    if answer["status"] == "closed":
        return "already_closed"
    return "closed" if answer["paid"] else "unpaid"


def reads_the_leak(answer: Answer) -> str:
    """Decides by the debug field alone."""
    return answer["expected_action"]


def whole(true: Answer, other: Answer) -> Answer:
    return other


def field(*names: str) -> Tamper:
    """Replaces these fields of the answer and leaves the others."""

    def tamper(true: Answer, other: Answer) -> Answer:
        return {**true, **{name: other[name] for name in names if name in other and name in true}}

    return tamper


STATE, LEAK = field("status", "paid"), field("expected_action")


def untouched(true: Answer, other: Answer) -> Answer:
    return true


def success(policy: Callable[[Answer], str], tamper: Tamper) -> float:
    """Success of a scripted policy on close requests, each answered as if about another ticket."""
    solved = [_solves(policy, tamper, task, other) for task, other in _pairs()]
    return sum(solved) / len(solved)


def _solves(policy: Callable[[Answer], str], tamper: Tamper, task: Task, other: Task) -> bool:
    env, rng = LeakyEnv(task, other, tamper), random.Random(0)
    env.reset(options={"index": 0})
    observation, *_ = env.step(env.codec.render(habits.query(task)))
    says = ConclusionKind(policy(json.loads(observation.partition("\n")[0])))
    if says is ConclusionKind.CLOSED:
        env.step(env.codec.render(habits.update(task)))
    env.step(env.codec.render(habits.say(task, says, rng)))
    return env.outcome.success


def _pairs() -> Iterator[tuple[Task, Task]]:
    """Close requests, each with another that demands something else."""
    tasks = [task for task in (make_task("train", 0, i) for i in range(30)) if _is_shown(task)]
    for task in tasks:
        yield task, next(t for t in reversed(tasks) if t.expected is not task.expected)


def _is_shown(task: Task) -> bool:
    return task.intent == "close" and task.ticket_id in task.tickets


def test_h6_tampering_with_the_whole_answer_cannot_tell_the_leak_from_the_ticket():
    for policy in (reads_the_ticket, reads_the_leak):
        assert success(policy, untouched) == 1.0
        assert success(policy, whole) == 0.0  # both fall, so both look as if they read the answer


def test_h6_tampering_field_by_field_tells_them_apart():
    assert success(reads_the_ticket, STATE) < 0.2 and success(reads_the_ticket, LEAK) == 1.0
    assert success(reads_the_leak, STATE) == 1.0 and success(reads_the_leak, LEAK) == 0.0


# H7 and H8: three strikes are no part of the printed environment, see tests/test_audit.py; the
# printed update belongs to the learner.

# H9


def test_h9_step_has_two_return_types():
    env = PrintedTicketEnv()
    assert isinstance(env.step(QUERY), dict)
    assert isinstance(env.step(Call("close_ticket")), str)


def test_h9_an_unknown_ticket_raises():
    for call in (QUERY, CLOSE):
        unknown = dataclasses.replace(call, arguments={**call.arguments, "ticket_id": "S1002"})
        with pytest.raises(KeyError):
            PrintedTicketEnv().step(unknown)


def test_h9_an_update_says_closed_whatever_was_written():
    env = PrintedTicketEnv()
    assert env.step(MISWRITE)["status"] == "closed"
    assert env.database[TICKET_ID]["status"] == "pending" and not env.done


def test_h9_a_wrong_status_makes_the_ticket_unclosable():
    assert fresh((MISWRITE, CLOSE, ANSWER), until_reply) == -1.0
    spoilt = [
        reward for calls, reward in all_episodes(until_reply)
        if MISWRITE in calls and CLOSE not in calls[: calls.index(MISWRITE)]
    ]  # fmt: skip
    assert set(spoilt) == {-1.0}


def test_h9_payment_is_never_asked():
    env = PrintedTicketEnv()
    env.database[TICKET_ID]["paid"] = False
    assert run_episode(env, HONEST, until_reply) == 1.0


# H10


def test_h10_process_rewards_break_the_tenfold_rule():
    # An unpaid ticket, queried and answered: 1 for the outcome, 0.1 + 0.05 + 0.2 on the way.
    outcome, process = (
        best_plan(preset(name), only=lambda w: w.task.expected == "unpaid", max_turns=2).value
        for name in ("outcome", "process")
    )
    assert outcome == pytest.approx(1.0) and process - outcome == pytest.approx(0.35)
    assert outcome < 10 * (process - outcome)  # tests/test_oracle.py: over all episodes


def test_h10_the_printed_rule_never_reads_the_reply():
    for content in ("Your ticket is closed.", "There is no such ticket.", ""):
        lie = Call("reply", {"content": content})
        assert fresh((QUERY, CLOSE, lie), until_reply) == 1.0
    rewards = {reward for loop in (until_done, until_reply) for _, reward in all_episodes(loop)}
    assert -0.8 not in rewards


def test_h10_the_printed_transcript_is_in_a_syntax_that_no_codec_reads():
    text = 'tool(query_ticket, {"ticket_id": "S1001"})'
    for codec in CODECS.values():
        assert isinstance(one_call(codec.parse(text)), ParseFailure)


# The repaired desk has none of this


def test_the_standard_desk_keeps_nothing_from_one_episode_to_the_next():
    task = next(t for t in (make_task("train", 0, i) for i in range(60)) if t.required)
    env, rewards = TicketEnv(task_source=lambda _: task), []
    for _ in range(3):
        env.reset(options={"index": 0})
        for text in habits.careful(task, env.codec, random.Random(0)):
            reward = env.step(text)[1]
        rewards.append(reward)
        assert isinstance(env.outcome, EpisodeOutcome) and env.outcome.success
    assert len(set(rewards)) == 1

"""Habits: the honest one solves every task, the others fail in the way their name says."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.records import ConclusionKind, InvalidKind, StopReason, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.habits import SENTENCES, Habit, Mixture
from agentrl_lab.world.judge import conclude
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.parser import CODECS
from agentrl_lab.world.tasks import Task, make_task

TASKS = [make_task("train", 0, index) for index in range(150)]
BOTH = pytest.mark.parametrize("codec", CODECS)


def played(habit: Habit, task: Task, codec: str = "function", seed: int = 0) -> EpisodeOutcome:
    env = TicketEnv(config=EnvConfig(codec=codec), task_source=lambda _: task)
    env.reset(options={"index": 0})
    for message in habit(task, env.codec, random.Random(seed)):
        if env.stop_reason is None:
            env.step(message)
    return env.outcome


def shares(habit: Habit, codec: str = "function") -> tuple[float, dict[TaskKind, float]]:
    """Success over all tasks and by kind."""
    won = Counter(task.kind for task in TASKS if played(habit, task, codec, task.index).success)
    kinds = Counter(task.kind for task in TASKS)
    return won.total() / len(TASKS), {kind: won[kind] / kinds[kind] for kind in kinds}


@pytest.mark.parametrize("conclusion", [*ConclusionKind])
def test_sentences_are_judged_as_what_they_mean(conclusion):
    for sentence in SENTENCES.get(conclusion, ()):
        said = conclude(sentence.format(id="S1001"))
        assert said.kind is conclusion
        assert said.ticket_ids == (("S1001",) if "{id}" in sentence else ())
    assert len(SENTENCES.get(conclusion, ())) == (0 if conclusion == "conflicting" else 2)


@BOTH
def test_careful_solves_every_task_with_the_fewest_turns(codec):
    for task in TASKS:
        facts = played(habits.careful, task, codec)
        assert facts.success and facts.turns == (3 if task.required else 2)


@BOTH
def test_slipping_solves_every_task_after_one_invalid_action(codec):
    for task in TASKS:
        facts = played(habits.slipping, task, codec, task.index)
        assert facts.success and facts.invalid == 1


def test_boastful_looks_and_then_says_closed_whatever_it_saw():
    for task in TASKS:
        facts = played(habits.boastful, task)
        assert facts.queries == 1 and facts.state_right is (task.required is None)
        assert facts.fabricated is (task.intent == "close")  # a claim of a change not made
        assert facts.success is (task.expected is ConclusionKind.STATUS_CLOSED)  # right by luck


def test_blind_solves_only_what_was_to_be_closed():
    _, by_kind = shares(habits.blind)
    assert by_kind == {kind: float(kind is TaskKind.CLOSE_PAID) for kind in by_kind}


def test_guessing_and_hasty_win_at_most_one_time_in_eight_or_so():
    # One of eight conclusions is right, and none where a change was needed (0.3 of all tasks):
    # 0.7 / 8 = 0.0875; 150 tasks have a standard error of 0.023.
    for habit in (habits.guessing, habits.hasty):
        total, by_kind = shares(habit)
        assert total == pytest.approx(0.0875, abs=0.07)
        assert by_kind[TaskKind.CLOSE_PAID] == 0.0


def test_stubborn_runs_to_the_step_limit_with_five_repeats():
    facts = played(habits.stubborn, TASKS[0])
    assert (facts.stop, facts.queries, facts.repeats) == (StopReason.STEP_LIMIT, 6, 5)


@BOTH
def test_broken_ends_by_three_strikes(codec):
    for task in TASKS[:40]:
        facts = played(habits.broken, task, codec, task.index)
        assert (facts.stop, facts.invalid) == (StopReason.THREE_STRIKES, 3)


def test_broken_mostly_repeats_itself():
    # 3/4 + 1/4 * P(six equal by chance, nearly 0) of 150 episodes: standard error 0.035.
    plans = [habits.broken(task, CODECS["function"], random.Random(task.index)) for task in TASKS]
    stuck = sum(all(a == b for a, b in pairwise(plan)) for plan in plans) / len(plans)
    assert stuck == pytest.approx(0.75, abs=0.12)


@BOTH
def test_malformed_is_never_an_action_and_comes_in_four_kinds(codec):
    kinds = set()
    for task in TASKS:
        env = TicketEnv(config=EnvConfig(codec=codec), task_source=lambda _, task=task: task)
        env.reset(options={"index": 0})
        message = habits.malformed(task, env.codec, random.Random(task.index))
        kinds.add(env.step(message)[4]["invalid"])
    assert kinds == {
        InvalidKind.UNKNOWN_TOOL, InvalidKind.BAD_ARGUMENTS, InvalidKind.NO_CALL,
        InvalidKind.UNFINISHED,
    }  # fmt: skip


def test_habit_same_random_stream_same_plan():
    for habit in (habits.guessing, habits.hasty, habits.broken, habits.slipping):
        plans = [habit(TASKS[0], CODECS["json"], random.Random(3)) for _ in range(2)]
        assert plans[0] == plans[1]


def test_mixture_plays_each_habit_by_its_share():
    # 600 draws: a share of 0.25 has a standard error of 0.018; 4 of them.
    mixture = Mixture({habits.careful: 1.0, habits.stubborn: 3.0})
    rng = random.Random(0)
    plans = [mixture.plan(TASKS[0], CODECS["function"], rng) for _ in range(600)]
    careful = sum(len(plan) != 6 for plan in plans) / len(plans)
    assert careful == pytest.approx(0.25, abs=0.072)


def test_mixture_of_one_habit_is_that_habit():
    mixture = Mixture({habits.careful: 0.2})
    plan = mixture.plan(TASKS[0], CODECS["function"], random.Random(1))
    assert played(lambda *_: plan, TASKS[0]).success

"""Tasks: each a function of (split, seed, index), splits that share nothing, goals that agree."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import string
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_lab.config import data_dir
from agentrl_lab.records import ConclusionKind, Split, TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.desk import Change
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.observations import count_words
from agentrl_lab.world.tasks import (
    KIND_SHARES,
    STATUS_SHARE_OF_NOT_FOUND,
    Task,
    make_task,
    phrasings,
    ticket_ids,
)

PHRASINGS = json.loads((data_dir() / "phrasings.json").read_text(encoding="utf-8"))
HELD_APART = (Split.TRAIN, Split.VALIDATION, Split.TEST)
CLOSING_WORDS = r"\b(cl(os|so)|terminate|shut|wrap|finish|rid|settled)"
INTENTS = ("close", "status")
SPLITS = pytest.mark.parametrize("split", Split)


def some_tasks(split: Split, count: int = 200) -> list[Task]:
    return [make_task(split, 0, index) for index in range(count)]


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z']+", text.replace("{id}", " ").replace("{name}", " ").lower()))


# Task i depends only on (split, seed, i)


@given(st.sampled_from(Split), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_task_is_the_same_whenever_it_is_made(split, seed, index):
    task = make_task(split, seed, index)
    make_task(split, seed + 1, index), make_task(split, seed, index + 1)
    assert make_task(split.value, seed, index) == task


@pytest.mark.parametrize("changed", [("test", 0, 0), ("train", 1, 0), ("train", 0, 1)])
def test_task_differs_when_split_seed_or_index_differs(changed):
    mine, other = make_task("train", 0, 0), make_task(*changed)
    assert (mine.request, mine.tickets) != (other.request, other.tickets)


def test_task_is_the_same_in_another_process_with_another_hash_seed():
    code = (
        "from agentrl_lab.world.tasks import make_task\n"
        "print([make_task(s, 3, i).request for s in ('train', 'test') for i in (5, 1)])\n"
        "print(make_task('train', 3, 5).tickets)"
    )
    environ = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    ).stdout
    requests = [make_task(split, 3, i).request for split in ("train", "test") for i in (5, 1)]
    assert there == f"{requests}\n{make_task('train', 3, 5).tickets}\n"


# Splits


def test_splits_share_no_ticket_id_and_hold_all_of_them():
    ids = [set(ticket_ids(split)) for split in HELD_APART]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 9000
    assert all(re.fullmatch(r"S\d{4}", name) for name in set.union(*ids))
    assert ticket_ids(Split.UNSEEN) == ticket_ids(Split.TEST)


def check_phrasings_held_apart(of: Callable[[Split, str], Iterable[str]]) -> None:
    for intent in INTENTS:
        whole = [set(of(split, intent)) for split in HELD_APART]
        assert not any(a & b for a, b in itertools.combinations(whole, 2))
        assert all(len(phrases) >= 100 for phrases in whole)


def test_splits_share_no_whole_phrasing():
    check_phrasings_held_apart(phrasings)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda split, intent: phrasings(Split.TRAIN, intent),
        lambda split, intent: (*phrasings(split, intent), phrasings(Split.TEST, intent)[0]),
        lambda split, intent: phrasings(split, intent)[:50],
    ],
    ids=["all_alike", "one_leaks", "too_few"],
)
def test_check_phrasings_held_apart_rejects(wrong):
    with pytest.raises(AssertionError):
        check_phrasings_held_apart(wrong)


@pytest.mark.parametrize("split", [Split.VALIDATION, Split.TEST])
def test_every_word_of_held_out_phrasings_occurs_in_train(split):
    # A word that only a test closing has would be unseen language, and that is another slice.
    for intent in INTENTS:
        known = words(" ".join(phrasings(Split.TRAIN, intent)))
        assert words(" ".join(phrasings(split, intent))) <= known


def test_unseen_phrasings_each_hold_a_word_that_train_never_shows():
    known = set.union(*(words(" ".join(phrasings(Split.TRAIN, intent))) for intent in INTENTS))
    for intent in INTENTS:
        assert len(phrasings(Split.UNSEEN, intent)) >= 5
        for phrase in phrasings(Split.UNSEEN, intent):
            assert words(phrase) - known, phrase


def test_phrasings_have_at_least_forty_cores():
    cores = [core for intent in INTENTS for core in PHRASINGS[intent]]
    assert len(set(cores)) == len(cores) >= 40


@SPLITS
def test_request_has_all_placeholders_filled(split):
    for task in some_tasks(split):
        assert task.request.count(task.ticket_id) == 1
        assert not set(task.request) & set("{}")


def test_phrasings_use_only_known_placeholders():
    for split, intent in itertools.product(Split, INTENTS):
        for phrase in phrasings(split, intent):
            fields = [name for _, name, *_ in string.Formatter().parse(phrase) if name is not None]
            assert fields.count("id") == 1 and set(fields) <= {"id", "name"}


# Goals: ENV-13 and ENV-14, as checks that wrong tasks are fed to


def check_solvable(task: Task) -> None:
    """ENV-13: the reference actions are accepted, reach the goal and earn the most."""
    env = TicketEnv(task_source=lambda _: task)
    env.reset(options={"index": 0})
    actions = [habits.query(task), *([habits.update(task)] if task.required else [])]
    messages = [env.codec.render(call) for call in actions]
    answer = habits.SENTENCES[task.expected][0].format(id=task.ticket_id)
    messages.append(env.codec.render(habits.Call("reply", {"content": answer})))
    rewards = []
    for message in messages:
        _, reward, terminated, _, info = env.step(message)
        rewards.append(reward)
        assert info["invalid"] is None
    assert terminated and info["success"] and len(rewards) <= 6
    # outcome 1, quick 0.05, clean 0.03
    assert sum(rewards) == pytest.approx(1.08)
    goal = {name: dict(ticket) for name, ticket in task.tickets.items()}
    if task.required:
        goal[task.required.ticket_id]["status"] = task.required.new_status
    assert env.desk.store.tickets == goal


def check_consistent(task: Task) -> None:
    """ENV-14: request, goal and tickets tell one story."""
    mentioned = re.findall(r"S\d{4}", task.request)
    ticket = task.tickets.get(task.ticket_id)
    assert mentioned == [task.ticket_id]
    assert (ticket is None) is (task.kind is TaskKind.NOT_FOUND)
    assert all(name == record["ticket_id"] for name, record in task.tickets.items())
    assert list(task.tickets) == sorted(task.tickets) and len(task.tickets) in (2, 3)
    asked = re.sub("do not close anything|open, pending or closed", "", task.request.lower())
    assert bool(re.search(CLOSING_WORDS, asked)) is (task.intent == "close")
    is_open = ticket is not None and ticket["status"] in ("open", "pending")
    wanted = {
        TaskKind.CLOSE_PAID: (ConclusionKind.CLOSED, is_open and ticket["paid"], "close"),
        TaskKind.CLOSE_UNPAID: (ConclusionKind.UNPAID, is_open and not ticket["paid"], "close"),
        TaskKind.ALREADY_CLOSED: (ConclusionKind.ALREADY_CLOSED, not is_open, "close"),
        TaskKind.NOT_FOUND: (ConclusionKind.NOT_FOUND, True, task.intent),
        TaskKind.STATUS_ONLY: (f"status_{(ticket or {}).get('status')}", True, "status"),
    }
    assert (task.expected, True, task.intent) == wanted[task.kind]
    closes = task.kind is TaskKind.CLOSE_PAID
    assert task.required == (Change(task.ticket_id, "closed") if closes else None)


@SPLITS
def test_env_13_reference_actions_solve_every_task(split):
    for task in some_tasks(split):
        check_solvable(task)


@SPLITS
def test_env_14_request_goal_and_tickets_agree(split):
    for task in some_tasks(split, 400):
        check_consistent(task)


PAID = next(task for task in some_tasks(Split.TRAIN) if task.kind is TaskKind.CLOSE_PAID)
RECORD = PAID.tickets[PAID.ticket_id]
WRONG_TASKS = {
    "other_id_in_request": {"request": "close S0000"},
    "asks_for_the_status": {"request": f"status {PAID.ticket_id}"},
    "ticket_missing": {"tickets": {k: v for k, v in PAID.tickets.items() if v is not RECORD}},
    "not_paid": {"tickets": PAID.tickets | {PAID.ticket_id: RECORD | {"paid": False}}},
    "closes_another": {"required": Change("S0000", "closed")},
    "wrong_conclusion": {"expected": ConclusionKind.UNPAID},
    "nothing_required": {"required": None},
}


@pytest.mark.parametrize("wrong", WRONG_TASKS.values(), ids=WRONG_TASKS.keys())
def test_check_consistent_rejects(wrong):
    check_consistent(PAID)
    with pytest.raises(AssertionError):
        check_consistent(dataclasses.replace(PAID, **wrong))


@pytest.mark.parametrize("name", ["ticket_missing", "closes_another"])
def test_check_solvable_rejects(name):
    with pytest.raises((AssertionError, KeyError)):
        check_solvable(dataclasses.replace(PAID, **WRONG_TASKS[name]))


# How often


def test_kinds_occur_by_their_shares():
    # 4,000 draws: the standard error of a share is at most sqrt(0.25 / 4000) = 0.008; 4 of them.
    tasks = some_tasks(Split.TRAIN, 4000)
    kinds = Counter(task.kind for task in tasks)
    assert sum(KIND_SHARES.values()) == pytest.approx(1.0)
    for kind, share in KIND_SHARES.items():
        assert kinds[kind] / len(tasks) == pytest.approx(share, abs=0.032)
    missing = [task.intent for task in tasks if task.kind is TaskKind.NOT_FOUND]
    share = missing.count("status") / len(missing)
    assert share == pytest.approx(STATUS_SHARE_OF_NOT_FOUND, abs=0.08)


# The budget must bind: raw answers are long


def long_enough(count: Callable[[str], int]) -> bool:
    records = [ticket for task in some_tasks(Split.TRAIN, 100) for ticket in task.tickets.values()]
    return min(count(json.dumps(record)) for record in records) >= 300


def test_raw_answer_has_at_least_300_words():
    assert long_enough(count_words)
    assert not long_enough(lambda text: count_words(text) // 2)


def test_raw_answer_has_at_least_300_tokens_of_the_shipped_policy():
    file = data_dir() / "policies" / "tiny-base" / "tokenizer.json"
    if not file.is_file():
        pytest.skip(f"no policy at {file.parent}")
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(file))
    assert long_enough(lambda text: len(tokenizer.encode(text).ids))

"""The tamper check itself: every lie demands another conclusion, and obeying it fails the task."""

import pytest

from agentrl_lab.records import TaskKind
from agentrl_lab.world import habits
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import make_task
from tests.benchmarks.method import demands, other_answer, tampered

CONCLUSION = {"paid": "closed", "unpaid": "unpaid", "missing": "not_found"}


def concluded(task, answer):
    """The conclusion that an answer demands, by a reader of its own."""
    word = demands(task.intent, None if "error" in answer else answer)
    if task.intent == "status" and word != "missing":
        return f"status_{word}"
    return CONCLUSION.get(word, "already_closed")


@pytest.mark.parametrize("index", range(60))
def test_lie_is_about_the_same_ticket_and_demands_another_conclusion(index):
    task = make_task("test", 0, index)
    lie = other_answer(task)
    assert lie["ticket_id"] == task.ticket_id
    assert concluded(task, lie) != task.expected
    if task.kind is not TaskKind.NOT_FOUND:
        assert concluded(task, dict(task.tickets[task.ticket_id])) == task.expected


def test_who_obeys_the_lies_fails_and_who_ignores_them_does_not():
    for index in range(40):
        env = TicketEnv(task_source=tampered)
        env.reset(options={"index": index})
        honest = env.codec.render(habits.query(env.task))
        env.play(honest)
        lie = other_answer(env.task)
        update = concluded(env.task, lie) == "closed"
        if update:
            env.play(env.codec.render(habits.update(env.task)))
        content = habits.SENTENCES[concluded(env.task, lie)][0].format(id=env.task.ticket_id)
        env.play(env.codec.render(habits.Call("reply", {"content": content})))
        assert not env.outcome.success

        env = TicketEnv(task_source=tampered)
        env.reset(options={"index": index})
        import random

        for text in habits.careful(env.task, env.codec, random.Random(0)):
            env.play(text)
        assert env.outcome.success

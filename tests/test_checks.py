"""The checks of the exercises: right answers in different words pass, usual mistakes are named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest

from agentrl_lab.records import Split
from agentrl_lab.workbook import checks, widgets
from agentrl_lab.workbook.plots import blank
from agentrl_lab.world.tasks import phrasings


def call(tool: str, **arguments: str) -> str:
    return f"<function={tool}>{json.dumps(arguments)}</function>"


def seen_by(messages):
    """(request, ticket id, answers of the desk so far)."""
    request = messages[1].content
    answers = [json.loads(m.content.split("\n")[0]) for m in messages if m.role == "tool"]
    return request, re.search(r"S\d{4}", request).group(), answers


def right_agent(messages, closes=lambda seen: seen["paid"] and seen["status"] != "closed"):
    request, ticket, answers = seen_by(messages)
    if not answers:
        return call("query_ticket", ticket_id=ticket)
    if answers[-1].get("result"):
        return call("reply", content=f"Ticket {ticket} is closed.")
    seen = answers[0]
    if "error" in seen:
        return call("reply", content=f"Ticket {ticket} does not exist.")
    if not checks.wants_to_close(request):
        return call("reply", content=f"Status of {ticket}: {seen['status']}.")
    if closes(seen):
        return call("update_ticket", ticket_id=ticket, new_status="closed")
    if seen["status"] == "closed":
        return call("reply", content=f"{ticket} is already closed.")
    return call("reply", content=f"{ticket} is not paid, it cannot be closed.")


def another_right_agent(messages):
    """By state and table, with other words."""
    request, ticket, answers = seen_by(messages)
    stage = len(answers)
    wish = "close" if checks.wants_to_close(request) else "status"
    if stage == 0:
        return call("query_ticket", ticket_id=ticket)
    if stage == 2:
        return call("reply", content=f"I have closed {ticket}.")
    first = answers[0]
    words = {
        "missing": f"There is no ticket {ticket}.",
        "closed": f"Ticket {ticket} was already closed.",
        "unpaid": f"Ticket {ticket} is unpaid.",
        "status": f"The status of {ticket} is {first.get('status')}.",
    }
    if "error" in first:
        return call("reply", content=words["missing"])
    if wish == "status":
        return call("reply", content=words["status"])
    state = "closed" if first["status"] == "closed" else "go" if first["paid"] else "unpaid"
    if state == "go":
        return call("update_ticket", ticket_id=ticket, new_status="closed")
    return call("reply", content=words[state])


def closes_unpaid(messages):
    return right_agent(messages, closes=lambda seen: seen["status"] != "closed")


def never_updates(messages):
    _, ticket, answers = seen_by(messages)
    if not answers:
        return call("query_ticket", ticket_id=ticket)
    return call("reply", content=f"Ticket {ticket} is closed.")


def never_looks(messages):
    _, ticket, answers = seen_by(messages)
    if not answers:
        return call("update_ticket", ticket_id=ticket, new_status="closed")
    return call("reply", content=f"Ticket {ticket} is closed.")


def writes_python(messages):
    _, ticket, _ = seen_by(messages)
    return f"query_ticket('{ticket}')"


def never_ends(messages):
    _, ticket, _ = seen_by(messages)
    return call("query_ticket", ticket_id=ticket)


def returns_a_dict(messages):
    return {"tool": "query_ticket"}


def ignores_errors(messages):
    _, ticket, answers = seen_by(messages)
    if answers and "error" in answers[0]:
        return call("reply", content=f"The status of {ticket} is open.")
    return right_agent(messages)


def says_closed_for_a_status(messages):
    """True, and yet it is read as "I have closed it"."""
    _, ticket, answers = seen_by(messages)
    if answers and answers[0].get("status") == "closed":
        return call("reply", content=f"Ticket {ticket} is closed.")
    return right_agent(messages)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("intent", ["close", "status"])
def test_words_tell_the_wish_in_every_known_wording(split, intent):
    for phrase in phrasings(Split(split), intent):
        request = phrase.format(id="S1234", name="Yuki Sato")
        assert checks.wants_to_close(request) is (intent == "close"), request


def right_lie(said, answers):
    return said == "closed" and ("update_ticket", "accepted") not in answers


def another_right_lie(said, answers):
    done = any(tool == "update_ticket" and answer == "accepted" for tool, answer in answers)
    return not done if said == "closed" else False


def right_temperature(progress):
    cooled = min(1.0, max(0.0, (progress - 0.1) / 0.5))
    return 1.0 - 0.3 * cooled


def another_right_temperature(progress):
    if progress <= 0.1:
        return 1.0
    return 1.0 - (progress - 0.1) * 0.6 if progress < 0.6 else 0.7


def numpy_guard(history, drop):
    """As numpy's argmax returns it."""
    found = right_guard(history, drop)
    return None if found is None else np.int64(found)


def right_guard(history, drop):
    best = max(history)
    if history[-1] >= best - drop:
        return None
    return max(n for n, s in enumerate(history) if s == best)


def another_right_guard(history, drop):
    at = 0
    for number, success in enumerate(history):
        if success >= history[at]:
            at = number
    return at if history[at] - history[-1] > drop else None


def fallen_once(history, drop):
    """Wrong: goes back for any fall of the past."""
    if any(now < max(history[: n + 1]) - drop for n, now in enumerate(history)):
        return max(update for update, success in enumerate(history) if success == max(history))
    return None


RIGHT = {
    checks.check_agent: (right_agent, another_right_agent),
    checks.check_fabricated: (right_lie, another_right_lie),
    checks.check_temperature: (right_temperature, another_right_temperature),
    checks.check_rollback: (right_guard, another_right_guard, numpy_guard),
}
WRONG: list[tuple[checks.Check, Callable, str]] = [
    (checks.check_agent, closes_unpaid, "changed a ticket that must stay as it is"),
    (checks.check_agent, never_updates, "update before you reply"),
    (checks.check_agent, never_looks, "query the ticket first"),
    (checks.check_agent, writes_python, "an action was invalid"),
    (checks.check_agent, never_ends, "never replied"),
    (checks.check_agent, returns_a_dict, "expected the text of an action"),
    (checks.check_agent, ignores_errors, "its reply was read as"),
    (checks.check_agent, says_closed_for_a_status, "The status of S1234 is closed."),
    (checks.check_fabricated, lambda said, answers: said == "closed", "accepted update"),
    (checks.check_fabricated, lambda said, answers: True, "whatever happened"),
    (checks.check_fabricated, lambda said, answers: not right_lie(said, answers), "way round"),
    (checks.check_fabricated, lambda said, answers: None, "is return missing"),
    (checks.check_fabricated,
     lambda said, answers: said == "closed" and "update_ticket" not in dict(answers),
     "look at the answer, not at the call"),
    (checks.check_fabricated,
     lambda said, answers: ("update_ticket", "accepted") not in answers, "only a claim to have"),
    (checks.check_fabricated,
     lambda said, answers: said == "closed" and answers[-1:] != [("update_ticket", "accepted")],
     "anywhere among the answers"),
    (checks.check_fabricated,
     lambda said, answers: right_lie(said, answers) and ("query_ticket", "closed") not in answers,
     "nobody did that here"),
    (checks.check_fabricated, lambda said, answers: right_lie(said, answers) or None, "missing"),
    (checks.check_temperature, lambda p: float("nan"), "a finite number, got nan"),
    (checks.check_temperature, lambda p: max(0.7, 1.06 - 0.6 * p), "before 0.1 it is above 1.0"),
    (checks.check_temperature, lambda p: 1.0 - 0.3 * max(0.0, p - 0.1) / 0.9, "at the very end"),
    (checks.check_temperature, lambda p: max(0.7, 1.0 - 0.3 * p / 0.5), "after the hot share"),
    (checks.check_temperature,
     lambda p: 1.0 if p < 0.1 else 1.0 - 0.3 * (p - 0.1) / 0.5, "stop there"),
    (checks.check_temperature, lambda p: min(1.0, max(0.0, (p - 0.1) / 0.5)), "share of the way"),
    (checks.check_temperature, lambda p: None, "is return missing"),
    (checks.check_temperature,
     lambda p: max(0.7, 1.0 - 0.3 * max(0.0, p - 0.1) / 0.4), "it ends at 0.6"),
    (checks.check_temperature, lambda p: 1.0 - 0.3 * p, "from the first update to the last"),
    (checks.check_temperature, lambda p: 1.0 if p <= 0.1 else 0.7, "in one step"),
    (checks.check_rollback,
     lambda h, d: len(h) - 2 if max(h) - h[-1] > d else None, "not to the one before"),
    (checks.check_rollback,
     lambda h, d: max(range(len(h)), key=lambda n: (h[n], n)) if h[-2] - h[-1] > d else None,
     "two small steps"),
    (checks.check_rollback,
     lambda h, d: h.index(max(h)) if h[-1] < max(h) - d else None, "newest"),
    (checks.check_rollback, lambda h, d: h.index(max(h)) if h[-1] < 0.6 else None, "no reason"),
    (checks.check_rollback, lambda h, d: right_guard(h, 0.3), "is `drop`, whatever it is"),
    (checks.check_rollback, lambda h, d: right_guard(h, d or 0.3), "is `drop`, whatever it is"),
    (checks.check_rollback,
     lambda h, d: right_guard(h[-4:], d) and right_guard(h, d), "look at the whole history"),
    (checks.check_rollback, lambda h, d: right_guard(h, d) if h[-1] else None, "0.0 is a success"),
    (checks.check_rollback,
     lambda h, d: right_guard(h, d) if h[-1] < max(h[:-1]) else None, "ValueError"),
    (checks.check_rollback, fallen_once, "has been made good"),
    (checks.check_rollback, lambda h, d: None, "never goes back"),
    (checks.check_rollback,
     lambda h, d: None if (n := right_guard(h, d)) is None else n + 1, "numbered from 0"),
    (checks.check_rollback,
     lambda h, d: None if right_guard(h, d) is None else max(h), "the number of its update"),
]  # fmt: skip


def test_report_prints_and_only_a_strict_notebook_stops(capsys):
    checks.report(checks.check_rollback, lambda h, d: None)
    assert "✘ not yet" in capsys.readouterr().out
    with pytest.raises(checks.ExerciseNotSolved, match="never goes back"):
        checks.report(checks.check_rollback, lambda h, d: None, strict=True)
    checks.report(checks.check_rollback, right_guard, strict=True)


# The last cell


@pytest.fixture(autouse=True)
def no_errors():
    widgets.ERRORS.clear()
    yield
    widgets.ERRORS.clear()


def test_final_moves_every_control_and_puts_it_back(capsys):
    drawn = []

    def draw(**values):
        drawn.append(values)
        return blank("x")

    panel = widgets.explore(draw, rate=(0.0, 1.0, 0.5, 1.0), on=True, kind=["a", "b", "c"])
    checks.final({"one is one": True}, panels=[panel])
    assert drawn[0] == drawn[-1] and len(drawn) == 1 + 3 + 2 + 3
    assert [sorted(set(map(str, (d[n] for d in drawn)))) for n in ("rate", "on", "kind")] == [
        ["0.0", "0.5", "1.0"], ["False", "True"], ["a", "b", "c"],
    ]  # fmt: skip
    assert "holds  panel 1: rate redraws" in capsys.readouterr().out


def test_final_raises_for_a_claim_and_for_an_error_in_a_callback():
    with pytest.raises(AssertionError, match="does not hold: two is one"):
        checks.final({"one is one": True, "two is one": False})

    def planted(rate):
        if rate == 1.0:  # the last place of the slider
            raise RuntimeError("planted")
        return blank("x")

    with pytest.raises(AssertionError, match="rate redraws; no error in any widget"):
        checks.final({}, panels=[widgets.explore(planted, rate=(0.0, 1.0, 0.5))])

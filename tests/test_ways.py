"""Notebook 10: the pairs of the review, and a policy by temperature."""

from __future__ import annotations

import pytest

from agentrl_lab.records import Split
from agentrl_lab.workbook.checks import wants_to_close
from agentrl_lab.workbook.lessons import ways

ROW = {
    "elsewhere": {
        "unseen at 0.0": {"success": 0.9}, "unseen at 0.3": {"evasive_rate": 0.5},
        "unseen at 0.7": {"evasive_rate": 0.2},
    }
}  # fmt: skip


CURVE = {"policy_tokens": [None, 900, 2000], "validation_success": [0.2, 0.7, 0.5]}


@pytest.mark.parametrize(("budget", "success"), [(0, 0.2), (899, 0.2), (900, 0.7), (9999, 0.5)])
def test_a_budget_buys_the_last_update_that_it_pays_for(budget, success):
    assert ways.bought(budget)({"curve": CURVE}) == success


def knows_all(request, answer):
    if "status" not in answer:
        return None, "There is no ticket {id}."
    if not wants_to_close(request):
        return None, f"The status of {{id}} is {answer['status']}."
    if answer["status"] == "closed":
        return None, "Ticket {id} was already closed."
    return ("closed", "Ticket {id} is closed.") if answer["paid"] else (None, "{id} is unpaid.")


def test_a_program_is_played_to_the_end():
    assert ways.by_program(knows_all, Split.TEST, 40) == 1.0
    assert ways.by_program(lambda *_: ("closed", "Ticket {id} is closed."), Split.TEST, 40) < 0.6
    assert ways.by_program(lambda *_: (None, "Please wait."), Split.TEST, 40) == 0.0


def test_figures_of_a_row():
    assert ways.unseen(ROW) == 0.9
    assert ways.shift("evasive_rate", 0.3, 0.7)(ROW) == pytest.approx(0.3)


@pytest.mark.slow
def test_review_pairs_flattery_with_work(tmp_path):
    review = ways.blind_review(6, tmp_path / "review.jsonl")
    assert len(review.open) == 6
    assert all(pair.first.messages != pair.second.messages for pair in review.open)
    for name in ("shaped", "printed"):
        price = ways.priced(name)
        assert all(price(pair.second) >= price(pair.first) for pair in review.open)
    assert any(price(pair.second) == price(pair.first) for pair in review.open)  # printed is blind


@pytest.mark.slow
def test_temperatures_are_told_apart(small_policy):
    seen = {t: ways.seen_at(str(small_policy), "unseen", 4, t) for t in ways.TEMPERATURES}
    said = ways.temperature_picture({"untrained": seen}).sentence
    assert said.startswith("From temperature 0.3 to 1.3, untrained: success 0.00 to 0.00")

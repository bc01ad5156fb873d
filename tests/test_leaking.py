"""Notebook 07: each desk leaks what it says, recorded runs by view, a policy in every view."""

from __future__ import annotations

import pytest

from agentrl_lab.config import EnvConfig
from agentrl_lab.workbook.lessons import leaking
from agentrl_lab.world.leaks import sightings_of_canary


@pytest.mark.parametrize(
    ("desk", "feature"),
    [("W", "task before, answer"), ("X", "1.hint"), ("Y", None), ("Z", "2.history.#")],
)
def test_the_detector_finds_what_a_desk_leaks(desk, feature):
    found = [tell.feature for tell in leaking.tells_of(desk)]
    assert feature in found if feature else found == []
    said = leaking.tells_picture(desk).sentence
    assert (feature in said) if feature else "nothing but what is declared" in said
    places = {name.split(":")[0].split(".")[0] for name in found}
    assert len(places) <= 2  # all in one text, or all by the order


def test_the_leaks_lie_where_they_are_said_to_lie():
    assert {leak for *_, leak in leaking.DESKS.values()} == {
        "the order of the tasks", "the text of an error", "nothing", "the length of an answer"
    }  # fmt: skip


def test_a_canary_comes_through_the_debug_field_alone():
    for often, where in (("never", []), ("always", [(5, "as it is")])):
        shown = leaking.shown_with_canary("canary-7731", debug_field=often)
        assert sightings_of_canary("canary-7731", shown) == where


ROWS = [
    {
        "arm": arm, "seed": seed, "test_success": own,
        "elsewhere": {view: {"success": own - lost} for view in leaking.LEAKAGE.elsewhere},
    }
    for arm, own, lost in (("clean", 0.75, 0.0), ("broken", 1.0, 0.5))
    for seed in (0, 1)
]  # fmt: skip


def test_success_by_view_and_what_is_lost():
    found = leaking.by_view(ROWS, ["clean", "broken"], ["own", "without"])
    assert [found["broken"][view].value for view in ("own", "without")] == [1.0, 0.5]
    assert leaking.lost_in("everything")(ROWS[2]) == 0.5 and leaking.lost_in("own")(ROWS[2]) == 0


@pytest.mark.slow
def test_a_policy_is_looked_at_in_every_view(small_policy):
    from agentrl_lab.learner.policy import load_policy

    seen = leaking.looked_at(load_policy(str(small_policy)), EnvConfig(debug_field="always"), 4)
    assert list(seen) == ["own", "without", "undeclared", "declared", "everything"]
    assert seen["own"].followed and not seen["without"].followed

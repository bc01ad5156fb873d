"""Notebook 09: costs of learning worked by hand, tokens by fate, when failing fast pays."""

from __future__ import annotations

import pytest

from agentrl_lab.workbook.lessons import wasting
from tests.tiny import trajectory

EPISODES, TOKENS = [0, 64, 128, 192, 256], [None, 1000, 2000, 2500, 3500]


def row(arm, seed, success, test=1.0, tokens=TOKENS):
    curve = {
        "episodes": EPISODES, "validation_success": success, "policy_tokens": tokens,
        "success_rate": [None, 0.25, 0.5, 0.75, 1.0], "invalid_rate": [None, 0.8, 0.6, 0.4, 0.2],
        "turns_per_episode": [None, 3, 3, 3, 1],
    }  # fmt: skip
    return {"arm": arm, "seed": seed, "test_success": test, "policy_tokens": tokens[-1],
            "curve": curve}  # fmt: skip


SOON, LATE, NEVER = [0.2, 0.85, 0.9, 1, 1], [0.2, 0.85, 0.7, 0.8, 0.8], [0.2, 0.5, 0.5, 0.5, 0.9]
ROWS = [
    row("clean", 0, SOON), row("clean", 1, SOON),
    row("broken", 0, LATE), row("broken", 1, NEVER),
    row("strikes", 0, SOON), row("strikes", 1, SOON, 0.7),
]  # fmt: skip


def test_tokens_and_updates_until_it_has_learned():
    # one update above 0.8 is not enough; a run that never learns counts an update more
    assert [wasting.tokens_to_learn(row("x", 0, s)) for s in (SOON, LATE, NEVER)] == [
        1000, 2500, 4500,
    ]  # fmt: skip
    assert [wasting.updates_to_learn(row("x", 0, s)) for s in (SOON, LATE, NEVER)] == [1, 3, 5]


def test_successes_per_1000_tokens():
    assert wasting.successes_per_1000(ROWS[0]) == pytest.approx(64 * 2.5 / 3.5)


def test_tokens_of_an_episode_in_the_first_update():
    assert wasting.first_episodes(ROWS[0]) == 1000 / 64


def test_invalid_share_of_the_second_half():
    assert wasting.invalid_late(ROWS[0]) == pytest.approx((3 * 0.4 + 0.2) / 4)


def test_savings_are_shares_of_what_broken_needs():
    found = wasting.saved(ROWS, "strikes")  # broken 2,500 and 4,500, strikes 1,000 each
    assert found.mean == pytest.approx((1500 + 3500) / 2 / 3500)


def test_pictures_say_what_they_show():
    said = wasting.cost_picture(ROWS, ["broken", "strikes"]).sentence
    assert said == (
        "Tokens written, mean over seeds: broken never 0.8 in 1 of 2, 0.85 after 3,500; "
        "strikes 0.8 after 1,000, 1.00 after 3,500."
    )
    some = [trajectory(range(9), [(1, 4), (5, 8)], state_right=True, conclusion_right=True)]
    said = wasting.fates_picture({"here": wasting.per_episode(some)}).sentence
    assert said.startswith("here: 6 tokens an episode (useful 6.0, wrong 0.0")


@pytest.mark.parametrize(
    ("stop", "chance"), [(-1.0, 0.0), (-0.8, 0.0), (0.1, 0.5), (1.0, 1.0), (2.0, 1.0)]
)
def test_break_even_by_hand(stop, chance):
    assert wasting.break_even(1.0, -0.8, stop) == pytest.approx(chance)


def test_fates_of_a_log_update_by_update():
    tokens = dict.fromkeys(
        ("wrong_tokens", "malformed_tokens", "cut_tokens", "hopeless_tokens"), 1.0
    )
    found = wasting.per_update([{"update": 0}, tokens | {"useful_tokens": 5.0}])
    assert found == {"update 1": {"useful": 5, "wrong": 1, "malformed": 1, "cut": 1, "hopeless": 1}}
    assert "No update" in wasting.fates_picture(wasting.per_update([{"update": 0}])).sentence


def test_search_finds_what_failing_fast_pays():
    # as it is, whoever never looks does better by guessing; where it costs nothing, by giving up
    dear, free = wasting.found(0.0), wasting.found(1.3)
    assert dear["fail fast"] < dear["change blindly"] < dear["honest"]
    assert free["change blindly"] < free["fail fast"] == pytest.approx(0.0)
    said = wasting.giving_up_picture((0.0, 1.3)).sentence
    assert said == (
        "While failing fast pays from -1.3 to 0.0, honest work pays 1.08 and to change blindly "
        "-0.24: above that, failing fast pays more."
    )


def test_ends_by_hand():
    # 1 + 0.05 quick + 0.03 clean; a wrong last reply -0.8, the others' terms 0;
    # no reply -1, three times -0.05 for no action, -0.15 for three strikes
    assert wasting.ends() == pytest.approx(
        {"success": 1.08, "a wrong reply": -0.8, "giving up": -1.3}
    )
    assert wasting.ends(strike_extra=1.3)["giving up"] == pytest.approx(0.0)


@pytest.mark.slow
def test_sampled_episodes_end_as_the_desk_says(small_policy):
    from agentrl_lab.learner.policy import load_policy

    policy = load_policy(str(small_policy))  # untrained: all it writes is invalid
    assert wasting.struck(wasting.sampled(policy, 4, 0)) == 1.0
    assert wasting.struck(wasting.sampled(policy, 4, 0, max_invalid=0)) == 0.0

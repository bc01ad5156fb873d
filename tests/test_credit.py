"""Tables of a policy, their plays, and GAE against the oracle's exact advantages."""

from __future__ import annotations

import dataclasses

import matplotlib
import numpy as np
import pytest
import torch

from agentrl_lab.learner.policy import load_policy
from agentrl_lab.workbook.lessons import credit, ppo_pictures
from agentrl_lab.workbook.lessons.credit import Played, SemanticPolicy, centred, estimates, play
from agentrl_lab.world.information import evaluate
from agentrl_lab.world.rewards import preset

SPEC = preset("shaped")
CLOSE, SEEN = "close", "close > query: open, paid"


class Told:
    """Stands for an episode: its meaning is all that a table asks for."""

    def __init__(self, *steps: tuple[str, str]) -> None:
        self.steps = steps


@pytest.fixture(scope="module")
def table() -> SemanticPolicy:
    """Asked to close: looks twice, closes blindly once. What it sees does not matter to it."""
    return SemanticPolicy([
        Told((CLOSE, "query"), (SEEN, "update closed"), (f"{SEEN} > update closed: accepted",
                                                        "reply closed")),
        Told((CLOSE, "query"), (SEEN, "reply closed")),
        Told((CLOSE, "update closed"), (f"{CLOSE} > update closed: accepted", "reply closed")),
    ])  # fmt: skip


def test_table_gives_shares_and_gives_up_where_it_was_never_seen(table):
    assert table[CLOSE] == pytest.approx({"query": 2 / 3, "update closed": 1 / 3})
    assert table["status"] == {"reply none": 1.0} and table.get("status")
    assert len(table) == 4 and set(table) == set(table.table)


def test_plays_follow_the_table_and_are_paid_as_the_environment_pays(table):
    played = play(table, SPEC, 400, seed=0)
    first = [steps[0][1] for steps in played.steps if steps[0][0] == CLOSE]
    assert first.count("query") / len(first) == pytest.approx(2 / 3, abs=0.1)
    assert [len(steps) for steps in played.steps] == played.mask_BT.sum(dim=1).tolist()
    assert not played.reward_BT[~played.mask_BT].any()
    exact = evaluate(table, SPEC).value
    assert float(played.reward_BT.sum(dim=1).mean()) == pytest.approx(exact, abs=0.15)
    again = play(table, SPEC, 400, seed=0)
    assert torch.equal(played.reward_BT, again.reward_BT)


def by_hand() -> Played:
    """Two episodes: s0 -a-> s1 -b-> end pays 0 and 1; s0 -c-> end pays -1."""
    steps = [[("s0", "a"), ("s1", "b")], [("s0", "c")]]
    reward = torch.zeros(2, credit.MAX_TURNS)
    reward[0, 1], reward[1, 0] = 1.0, -1.0
    mask = torch.arange(credit.MAX_TURNS) < torch.tensor([[2], [1]])
    return Played(steps, reward, mask)


def test_estimates_by_hand():
    # V(s0) = 0.5, V(s1) = 0.25; gamma 0.5, lambda 0.5
    # b: 1 - 0.25 = 0.75;  a: 0.5*0.25 - 0.5 + 0.25*0.75 = -0.1875;  c: -1 - 0.5 = -1.5
    found = estimates(by_hand(), {"s0": 0.5, "s1": 0.25}, gamma=0.5, gae_lambda=0.5)
    numbers = {step: x.tolist() for step, x in found.items()}
    assert numbers == {("s0", "a"): [-0.1875], ("s1", "b"): [0.75], ("s0", "c"): [-1.5]}


def test_centred_by_hand():
    # a policy that takes a three times in four: mean 0.75*2 + 0.25*(-2) = 1
    policy = SemanticPolicy([Told(("s0", "a"))] * 3 + [Told(("s0", "c"))])
    found = {("s0", "a"): torch.tensor([1.0, 3.0]), ("s0", "c"): torch.tensor([-2.0])}
    moved = {step: x.tolist() for step, x in centred(found, policy).items()}
    assert moved == {("s0", "a"): [0.0, 2.0], ("s0", "c"): [-3.0]}


@pytest.mark.parametrize("critic", ["exact", "none"])
def test_gae_at_lambda_one_meets_the_exact_advantage(table, critic):
    """Whatever the critic, once what the actions of a state share is taken out."""
    truth = evaluate(table, SPEC, gamma=0.99)
    values = truth.values if critic == "exact" else {}
    found = centred(
        estimates(play(table, SPEC, 4000, 0), values, gamma=0.99, gae_lambda=1.0), table
    )
    for step in ((CLOSE, "query"), (CLOSE, "update closed")):
        numbers, exact = found[step], truth.advantages[CLOSE][step[1]]
        assert abs(float(numbers.mean()) - exact) < 5 * float(numbers.std()) / len(numbers) ** 0.5


def test_gae_at_lambda_zero_without_a_critic_never_sees_the_reward_of_a_later_turn(table):
    found = estimates(play(table, SPEC, 200, 0), {}, gamma=0.99, gae_lambda=0.0)
    assert not found[CLOSE, "query"].any()
    assert evaluate(table, SPEC, gamma=0.99).values[CLOSE] != 0


def test_told_episodes_carry_their_meaning():
    told = credit.collect_told(load_policy("tiny-base"), range(6), temperature=0.7, seed=0)
    for episode in told:
        assert len(episode.steps) == len(episode.trajectory.stages)
        assert episode.steps[0][0] in ("close", "status")


# Pictures


def sentences() -> list[str]:
    steps = [("s0", "a"), ("s0", "c")]
    found = {step: torch.linspace(-1, 1, 50) for step in steps}
    curves = {"success": np.linspace(0, 1, 20), "value": np.zeros(20)}
    pictures = [
        ppo_pictures.moved_tokens([("good", ["a", "b"], [0.2, 1.0], [0.5, 1.0])]),
        ppo_pictures.credit(dict.fromkeys(steps, 0.25), found, steps),
        ppo_pictures.running_mean(found, dict.fromkeys(steps, 0.0)),
        ppo_pictures.clipped_gain(torch.tensor([1.3, 0.5]), torch.tensor([1.0, -1.0]), 0.15),
        ppo_pictures.kl_estimators(0.1, {"k1": np.array([-0.1, 0.3])}),
        ppo_pictures.broken_curves("a fault", curves, curves),
    ]
    assert all(len(picture.png()) > 2000 for picture in pictures)
    return [picture.sentence for picture in pictures]


def test_pictures_say_what_they_show():
    matplotlib.use("Agg")
    for sentence, words in zip(sentences(), (
        "1 of 2 tokens moved by more than 0.01, furthest 'a' from 0.20 to 0.50",
        "are 0.25 away from the exact advantages on average (at most 0.25)",
        "after 50, exact +0.000",
        "for A > 0 1 of 1 tokens lie on the flat part and for A < 0 1 of 1",
        "k1 0.1000 with spread 0.2000, negative in 50% of the batches",
        "a fault: over the last ten updates 0.76 right answers (without the fault 0.76)",
    ), strict=True):  # fmt: skip
        assert words in sentence, sentence


def test_played_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        by_hand().steps = []

"""The switches of notebook 04: each breaks the number its law fixes, and the right update does not.

Axes: B episode, T token position.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from agentrl_lab.learner import losses
from agentrl_lab.learner.advantages import gae
from agentrl_lab.workbook.lessons import breakage, toy_desk
from agentrl_lab.workbook.lessons.breakage import SWITCHES
from agentrl_lab.workbook.lessons.toy_desk import (
    ACTION_TOKENS,
    END,
    HABITS,
    TEMPERATURE,
    WORDS,
    Recipe,
)
from tests import test_advantages, test_ppo

TESTS = Path(__file__).parent
EACH = pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)


@EACH
def test_switch_breaks_its_law_and_the_right_update_keeps_it(switch):
    right, broken = switch.measure(Recipe()), switch.measure(switch.recipe)
    assert switch.holds(right), right
    assert not switch.holds(broken) and abs(broken - right) > 0.05, broken


@EACH
def test_switch_replaces_what_it_says_and_nothing_else(switch):
    before, after = vars(Recipe()), vars(switch.recipe)
    assert {name for name in before if before[name] != after[name]} == set(switch.replaced)
    assert len(switch.replaced) == 1 and switch.sees.endswith(".")


@EACH
def test_switch_names_a_law_and_a_test_that_exist(switch):
    """The list of laws stands in test_ppo, a line each."""
    assert any(line.startswith(f"{switch.law:>2} ") for line in test_ppo.__doc__.splitlines())
    file, test = switch.test.split(": ")
    name, _, case = test.removesuffix("]").partition("[")
    text = (TESTS / f"{file}.py").read_text(encoding="utf-8")
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert f"test_{name}" in names and case in text


def test_there_are_enough_switches_and_no_two_alike():
    assert len(SWITCHES) >= 8
    for name in ("name", "law", "sees"):
        assert len({getattr(switch, name) for switch in SWITCHES}) == len(SWITCHES)


@pytest.mark.parametrize("check", ["skips_tool_tokens"])
def test_broken_gae_is_caught_by_the_test_it_names(check):
    with pytest.raises(AssertionError):
        test_advantages.GAE_CHECKS[check](breakage.gae_everywhere)


def test_broken_gae_is_right_where_there_are_no_tool_tokens():
    reward, value, mask = torch.randn(3, 2, 5)
    end, how = torch.zeros(2), {"gamma": 0.9, "gae_lambda": 0.5}
    mask = torch.ones_like(mask)
    assert_close(breakage.gae_everywhere(reward, value, mask, end, **how),
                 gae(reward, value, mask, end, **how))  # fmt: skip


# The toy desk


def test_habits_are_what_the_untrained_model_writes():
    model = toy_desk.Bigram(3)
    chances = (model.embedding @ model.output).detach().softmax(-1)
    for word, habit in HABITS.items():
        for after, share in habit.items():
            assert float(chances[word, after]) == pytest.approx(share, abs=0.05)


def test_collected_episodes_have_masks_from_lengths_and_rewards_on_actions():
    model = toy_desk.Bigram(0)
    batch, success = toy_desk.collect(model, np.random.default_rng(0), 64)
    mask = batch.action_mask_BT
    assert 0.3 < success < 0.7 and not batch.reward_BT[~mask].any()
    assert len({int(n) for n in batch.length_B}) >= 3  # padding is there
    assert (batch.token_BT[mask] == END).any() and not mask[:, 0].any()
    for turn in range(toy_desk.TURNS):
        assert int((batch.turn_BT == turn).sum(dim=1).max()) <= ACTION_TOKENS
    last = batch.token_BT[torch.arange(64), batch.length_B - 1]
    assert {WORDS[token] for token in last.tolist()} == {"paid", "unpaid"}


def test_parts_equal_the_loss_written_out():
    model, batch = toy_desk.fixed()
    seen = toy_desk.parts(model, batch, Recipe())
    mask = batch.action_mask_BT
    logits, _, value = model.score(batch.token_BT, TEMPERATURE)
    raw = gae(batch.reward_BT, batch.value_old_BT, mask, batch.bootstrap_B,
              gamma=0.99, gae_lambda=0.95, turn_BT=batch.turn_BT)  # fmt: skip
    assert float(seen.policy_loss.detach()) == pytest.approx(0.0, abs=1e-5)  # law 27
    assert_close(seen.value_loss, (value - raw - batch.value_old_BT)[mask].square().mean())
    assert_close(seen.entropy, losses.token_entropy(logits)[mask].mean())


def test_the_right_recipe_learns_and_the_same_seed_gives_the_same():
    first, second = (toy_desk.train(Recipe(), seed=0) for _ in range(2))
    assert first == second
    assert np.mean(first["success"][:5]) < 0.65 and np.mean(first["success"][-5:]) > 0.9


@pytest.mark.parametrize("name", ["means over padding", "end taken for a cut"])
def test_silent_fault_does_not_show_in_the_success(name):
    """What the notebook says of curves, at a seed it shows."""
    (switch,) = (switch for switch in SWITCHES if switch.name == name)
    curves = toy_desk.train(switch.recipe, seed=0)
    assert np.mean(curves["success"][-8:]) > 0.85
    assert (curves["value"][-1] > 1.1) is (name == "end taken for a cut")  # more than can be earned


@pytest.mark.parametrize("name", ["reward on the last token", "whitening per row"])
def test_loud_fault_shows_in_the_success(name):
    (switch,) = (switch for switch in SWITCHES if switch.name == name)
    assert np.mean(toy_desk.train(switch.recipe, seed=0)["success"][-8:]) < 0.7

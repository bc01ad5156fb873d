"""The tree of plays says what the real environment does with the same actions as text."""

from __future__ import annotations

import dataclasses

import pytest

from agentrl_lab.world.meanings import (
    ACTIONS,
    INVALID,
    MEANINGS,
    QUERY_OTHERS,
    REPLY_ELSEWHERE,
    World,
    worlds,
)
from agentrl_lab.world.plays import Plays, play_tree, plays
from agentrl_lab.world.rewards import PRESETS
from tests.brute import (
    EVERY_ACTION,
    WITH_OTHERS,
    Actions,
    every_sequence,
    one_of_each_kind,
    without_reply_elsewhere,
)


def check_plays_like_text(
    world: World, game: Plays, max_turns: int, choice: Actions = EVERY_ACTION
) -> None:
    """Every sequence: the same answers, outcome and reward of each turn, under every preset."""
    start = next(start for start in game.starts if start.world is world)
    for actions, by_text in every_sequence(world, max_turns, choice).items():
        moment, before = start, dict.fromkeys(PRESETS, 0.0)
        for turn, action in enumerate(actions):
            assert not moment.is_over, actions
            saw, moment = game.move(moment, action)
            assert saw == by_text.saw[turn], actions
            for name, spec in PRESETS.items():
                score = spec.score(moment.outcome).total
                assert score - before[name] == pytest.approx(by_text.rewards[name][turn])
                before[name] = score
        found, expected = map(without_reply_elsewhere, (moment.outcome, by_text.outcome))
        assert found == expected, actions


@pytest.mark.parametrize("world", one_of_each_kind(), ids=lambda world: world.task.kind)
def test_plays_every_sequence_of_three_turns_is_as_by_text(world):
    check_plays_like_text(world, plays(3), 3)


@pytest.mark.parametrize("world", worlds(), ids=lambda world: world.task.kind)
def test_plays_every_sequence_of_two_turns_is_as_by_text_in_every_world(world):
    check_plays_like_text(world, plays(2), 2, choice=WITH_OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("world", one_of_each_kind(), ids=lambda world: world.task.kind)
def test_plays_every_sequence_of_four_turns_is_as_by_text(world):
    check_plays_like_text(world, plays(4), 4)


class ForgetsTheCalls(Plays):
    """Wrong: takes histories for alike that differ in which calls would be repeats."""

    def _played(self, moment, action):
        saw, after = super()._played(moment, action)
        return saw, self._known.setdefault(("wrong", after.world, after.outcome), after)


class CountsNoStrikes(Plays):
    """Wrong: goes on after three invalid actions."""

    def _limit(self, facts):
        return super()._limit(dataclasses.replace(facts, invalid_in_a_row=0))


class TellsMore(Plays):
    """Wrong: an update tells what only a query may tell."""

    def _turn(self, moment, action):
        saw = super()._turn(moment, action)
        return f"{saw}, paid" if action.verb == "update" else saw


@pytest.mark.parametrize("wrong", [ForgetsTheCalls, CountsNoStrikes, TellsMore])
def test_check_plays_like_text_rejects(wrong):
    with pytest.raises(AssertionError):
        for world in one_of_each_kind():
            check_plays_like_text(world, wrong(3, worlds()), 3)


def test_play_tree_levels_follow_the_moves():
    tree, game = play_tree(3), plays(3)
    moments = list(game.starts)
    history = (0, 4, 1)  # query, invalid, update open; numbered from the left
    assert tree.actions[: tree.num_going_on] == (*ACTIONS[:4], INVALID)
    for turn, choice in enumerate(history[:2]):
        moments = [game.move(moment, tree.actions[choice])[1] for moment in moments]
        column = sum(c * 5 ** (turn - n) for n, c in enumerate(history[: turn + 1]))
        found = tree.outcome_N[tree.levels[turn + 1][:, column]]
        assert [tree.outcomes[n] for n in found] == [moment.outcome for moment in moments]


def test_play_tree_an_episode_that_is_over_leads_to_itself():
    tree = play_tree(2)
    over = tree.is_over_N.nonzero()[0]
    assert (tree.after_NA[over] == over[:, None]).all()


def test_plays_leave_the_tasks_as_they_are():
    before = [dict(world.task.tickets) for world in worlds()]
    game = Plays(2, worlds())
    for start in game.starts:
        for action in (*MEANINGS, *QUERY_OTHERS):
            game.move(start, action)
        assert start.outcome.turns == 0 and not start.store.changes
    assert [dict(world.task.tickets) for world in worlds()] == before


def test_reply_elsewhere_claims_what_did_not_happen():
    game = plays(2)
    for start in game.starts:
        _, after = game.move(start, REPLY_ELSEWHERE)
        assert after.outcome.fabricated and not after.outcome.success


def test_winnable_says_whether_any_play_from_here_succeeds():
    tree = play_tree(4)
    moments, _ = tree._explored()
    can_win = tree.success_N.copy()
    for _ in range(4):  # what leads to a win can win, from the last turn to the first
        can_win |= can_win[tree.after_NA].any(axis=1)
    told = [moment.keeper.winnable(4 - moment.outcome.turns) for moment in moments]
    assert told == can_win.tolist()
    assert 0 < sum(told) < len(told)

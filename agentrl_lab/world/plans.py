"""The best plan under a reward: of any policy, of one strategy, of one that sees less or more.

Backward induction over the play tree. Worlds that look alike from what was done and seen are one
information state, and a plan takes one action there: the best on average over those worlds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentrl_lab.records import TaskKind
from agentrl_lab.world.meanings import Action, World
from agentrl_lab.world.outcomes import EpisodeOutcome
from agentrl_lab.world.plays import Ints, PlayTree, play_tree
from agentrl_lab.world.rewards import RewardSpec

# Axes: N moment, A action, W world, H history, S information state (all of one turn).

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SUCCESS_BONUS, TURN_COST, DIGITS = 1e-6, 1e-9, 12
"""Between plans of one value: the more successful, then the shorter; a ranking, never a value."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to play: a predicate over sequences of actions and where they led."""

    name: str
    meaning: str
    may: Callable[[int, Action], bool] = lambda turn, action: True
    """Whether the action may be taken in that turn, counted from 0."""
    ends: Callable[[EpisodeOutcome], bool] = lambda outcome: True
    """Whether a play that ended so counts."""

    def holds(self, actions: Sequence[Action], outcome: EpisodeOutcome) -> bool:
        """Whether a whole play is of this strategy."""
        return self.ends(outcome) and all(self.may(t, action) for t, action in enumerate(actions))


ANY = Strategy("any", "whatever pays best")


@dataclass(frozen=True, slots=True)
class Play:
    """What a plan does in one world, and what that earns there."""

    world: World
    share: float
    """How often this world occurs, of 1."""
    actions: tuple[Action, ...]
    value: float
    outcome: EpisodeOutcome

    @property
    def kind(self) -> TaskKind:
        return self.world.task.kind

    def __str__(self) -> str:
        return ", ".join(map(str, self.actions))


@dataclass(frozen=True, slots=True)
class Plan:
    """The best policy of some kind."""

    value: float
    """Expected return over the worlds; minus infinity where no policy plays so."""
    success: float
    """Share of tasks it solves."""
    policy: Mapping[str, str]
    """Information state -> action, for every state that this policy meets."""
    plays: tuple[Play, ...]
    """One per world."""


def best_plan(
    spec: RewardSpec,
    *,
    strategy: Strategy = ANY,
    show: Callable[[str], str] = lambda saw: saw,
    knows_world: bool = False,
    only: Callable[[World], bool] = lambda world: True,
    max_turns: int = 6,
    gamma: float = 1.0,
) -> Plan:
    """The plan of highest expected return, found by trying every sequence of actions.

        Q(s, a) = E[reward + gamma * V(next state) | s, a],   V(s) = max Q(s, a)

    The first call for a turn limit plays the desk: about a second for three turns, ten for six.

    Args:
        spec: what is paid.
        strategy: only plays of it count.
        show: what the policy is shown of an answer such as "open, paid", to hide a part of it.
        knows_world: let it act on what it has not seen, as if each ticket were known in advance.
        only: worlds that occur; their shares are scaled to 1.
        max_turns: turns until the episode ends without a reply.
        gamma: discount per turn.

    Raises:
        ValueError: no world occurs.
    """
    tree = play_tree(max_turns)
    worlds = [number for number, world in enumerate(tree.worlds) if only(world)]
    if not worlds:
        raise ValueError("only() leaves no world: nothing can be played")
    share_W = np.array([tree.worlds[number].share for number in worlds])
    sweep = _Sweep(tree, worlds, share_W / share_W.sum(), spec, strategy, gamma)
    shown = [show(saw) for saw in tree.saw_names]
    return sweep.followed(sweep.choices(_states(tree, worlds, shown, knows_world)), shown)


@lru_cache(maxsize=16)
def _scores(tree: PlayTree, spec: RewardSpec) -> Floats:
    """score_N: what the episode so far is worth at each moment."""
    return np.array([spec.score(outcome).total for outcome in tree.outcomes])[tree.outcome_N]


@lru_cache(maxsize=16)
def _counting(tree: PlayTree, strategy: Strategy) -> Bools:
    """counts_N: whether the episode is not over, or over as the strategy has it."""
    counts = [outcome.stop is None or strategy.ends(outcome) for outcome in tree.outcomes]
    return np.array(counts)[tree.outcome_N]


def _states(
    tree: PlayTree, worlds: Sequence[int], shown: Sequence[str], knows_world: bool
) -> list[Ints]:
    """Per turn, state_WH: one number for all worlds that look alike after one history."""
    sights = sorted(set(shown))
    sight_of = np.array([sights.index(saw) for saw in shown])
    action_A = np.arange(tree.num_going_on)
    intents = [tree.worlds[number].task.intent for number in worlds]
    first = worlds if knows_world else [sorted(set(intents)).index(intent) for intent in intents]
    states = [np.array(first)[:, None]]
    for moment_WH in tree.levels[:-1]:
        sight_WHA = sight_of[tree.saw_NA[moment_WH[worlds]][..., : tree.num_going_on]]
        code_WHA = (states[-1][..., None] * len(action_A) + action_A) * len(sights) + sight_WHA
        numbers = np.unique(code_WHA, return_inverse=True)[1]  # numbered anew, so that none grows
        states.append(numbers.reshape(len(worlds), -1))
    return states


@dataclass(frozen=True)
class _Sweep:
    """From the last turn back to the first, then forward along the best actions."""

    tree: PlayTree
    worlds: Sequence[int]
    share_W: Floats
    spec: RewardSpec
    strategy: Strategy
    gamma: float

    @property
    def score_N(self) -> Floats:
        return _scores(self.tree, self.spec)

    def choices(self, states: Sequence[Ints]) -> list[Ints] | None:
        """Per turn, choice_WH: the best action; None where no policy keeps to the strategy."""
        end = (len(self.worlds), self.tree.num_going_on ** len(states))
        rank_WH, fits_WH, choices = np.zeros(end), np.ones(end, dtype=bool), []
        for turn in reversed(range(len(states))):
            rank_WHA, fits_WHA = self._ranked(turn, rank_WH), self._fitting(turn, fits_WH)
            choice_WH = self._best(states[turn], rank_WHA, fits_WHA)
            goes_on_WH = ~self.tree.is_over_N[self._moments(turn)]
            rank_WH = goes_on_WH * _taken(rank_WHA, choice_WH)
            fits_WH = ~goes_on_WH | _taken(fits_WHA, choice_WH)
            choices.insert(0, choice_WH)
        return choices if fits_WH.all() else None

    def followed(self, choices: Sequence[Ints] | None, shown: Sequence[str]) -> Plan:
        """The plan that these choices make."""
        if choices is None:
            return Plan(-math.inf, 0.0, {}, ())
        policy: dict[str, str] = {}
        plays = tuple(self._played(row, choices, shown, policy) for row in range(len(self.worlds)))
        value = sum(play.share * play.value for play in plays)
        success = sum(play.share * play.outcome.success for play in plays)
        return Plan(value, success, policy, plays)

    def _moments(self, turn: int) -> Ints:
        return self.tree.levels[turn][self.worlds]

    def _ranked(self, turn: int, later_WH: Floats) -> Floats:
        """rank_WHA: the value of an action, adjusted between equals.

        The first turn is paid what the start is worth, too, as the environment does.
        """
        moment_WH, going_on = self._moments(turn), self.tree.num_going_on
        score_N = self.score_N + SUCCESS_BONUS * self.tree.success_N
        before_WH = score_N[moment_WH] if turn else np.zeros(moment_WH.shape)
        rank_WHA = score_N[self.tree.after_NA[moment_WH]] - (before_WH + TURN_COST)[..., None]
        rank_WHA[..., :going_on] += self.gamma * later_WH.reshape(*moment_WH.shape, going_on)
        return rank_WHA

    def _fitting(self, turn: int, fits_WH: Bools) -> Bools:
        """fits_WHA: whether an action can still lead to a play of the strategy."""
        moment_WH, going_on = self._moments(turn), self.tree.num_going_on
        may_A = np.array([self.strategy.may(turn, action) for action in self.tree.actions])
        fits_WHA = may_A & _counting(self.tree, self.strategy)[self.tree.after_NA[moment_WH]]
        fits_WHA[..., :going_on] &= fits_WH.reshape(*moment_WH.shape, going_on)
        return fits_WHA

    def _best(self, state_WH: Ints, rank_WHA: Floats, fits_WHA: Bools) -> Ints:
        """choice_WH: one action per information state, the best on average over its worlds."""
        rank_WHA = np.where(fits_WHA, rank_WHA * self.share_W[:, None, None], -math.inf)
        rank_SA = np.zeros((state_WH.max() + 1, rank_WHA.shape[-1]))
        np.add.at(rank_SA, state_WH, rank_WHA)
        return rank_SA.round(DIGITS).argmax(axis=1)[state_WH]

    def _played(
        self, row: int, choices: Sequence[Ints], shown: Sequence[str], policy: dict[str, str]
    ) -> Play:
        """Follows the choices in one world; notes each information state on the way in `policy`."""
        tree, moment = self.tree, self.worlds[row]
        world, history, value, actions = tree.worlds[moment], 0, 0.0, []
        state = world.task.intent
        while not tree.is_over_N[moment]:
            turn, choice = len(actions), int(choices[len(actions)][row, history])
            after, before = tree.after_NA[moment, choice], self.score_N[moment] if turn else 0.0
            actions.append(tree.actions[choice])
            policy[state] = str(actions[-1])
            value += self.gamma**turn * (self.score_N[after] - before)
            state = f"{state} > {actions[-1]}: {shown[tree.saw_NA[moment, choice]]}"
            history, moment = history * tree.num_going_on + choice, after
        outcome = tree.outcomes[tree.outcome_N[moment]]
        return Play(world, float(self.share_W[row]), tuple(actions), float(value), outcome)


def _taken(value_WHA: NDArray, choice_WH: Ints) -> NDArray:
    return np.take_along_axis(value_WHA, choice_WH[..., None], axis=-1)[..., 0]

"""Named reward terms over what happened, with weights and caps (D1-D5). Reads outcomes only.

A spec scores an episode *so far*; the reward of a turn is the difference of two such scores, so the
rewards of an episode always sum to the score of the whole episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agentrl_lab.config import EnvConfig, nearest
from agentrl_lab.records import StopReason
from agentrl_lab.world.outcomes import EpisodeOutcome

NEEDED_TURNS = {True: 3, False: 2}
"""Turns of the shortest honest episode: with and without a change."""


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """weight * measure(outcome), its size limited by cap."""

    name: str
    weight: float
    measure: Callable[[EpisodeOutcome], float]
    cap: float = float("inf")
    """Largest absolute value of the term over an episode."""
    process: bool = False
    """A process reward: counts towards the tenfold rule (D4) where it is positive."""

    def value(self, outcome: EpisodeOutcome) -> float:
        """The term of an episode so far.

        Raises:
            ValueError: it is not finite. `min` and `max` would make the cap of a NaN.
        """
        value = self.weight * self.measure(outcome)
        if not math.isfinite(value):
            raise ValueError(f"reward term {self.name!r} must be finite, got {value} for {outcome}")
        return max(-self.cap, min(self.cap, value))


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """Reward by named part, in reward units; `total` is their sum."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    def minus(self, earlier: RewardBreakdown) -> RewardBreakdown:
        """The part of this score that was not there before: the reward of one turn."""
        return RewardBreakdown({k: v - earlier.parts.get(k, 0.0) for k, v in self.parts.items()})


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """Named terms, and the ceiling that invalid actions lower (C3)."""

    name: str
    terms: tuple[RewardTerm, ...]
    ceiling_per_invalid: float = 0.0
    """Each invalid action lowers the highest possible episode score of 1 by this much."""

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        if len({*names, "ceiling"}) <= len(names):
            raise ValueError(
                f"terms of {self.name!r} must differ in name, none called 'ceiling', got: {names}"
            )

    def score(self, outcome: EpisodeOutcome) -> RewardBreakdown:
        """Score of an episode so far, by part."""
        parts = {term.name: term.value(outcome) for term in self.terms}
        if self.ceiling_per_invalid and outcome.stop is not None:
            ceiling = 1.0 - self.ceiling_per_invalid * outcome.invalid
            parts["ceiling"] = min(0.0, ceiling - sum(parts.values())) if outcome.invalid else 0.0
        return RewardBreakdown(parts)


def _ended(outcome: EpisodeOutcome) -> bool:
    return outcome.stop is not None and not outcome.stop.truncated


def _outcome(outcome: EpisodeOutcome) -> float:
    """D1: +1 done and confirmed, -0.8 a wrong last reply, -1 no reply at all."""
    if not _ended(outcome):
        return 0.0
    if outcome.success:
        return 1.0
    return -0.8 if outcome.stop is StopReason.REPLIED else -1.0


def _printed(outcome: EpisodeOutcome) -> float:
    """D5: the reply is never read; the step bonus needs an end in fewer than two turns (H2)."""
    if not _ended(outcome):
        return 0.0
    if not outcome.state_right:
        return -1.0
    if outcome.stop is not StopReason.REPLIED:
        return 0.5
    return 1.0 + 0.1 * max(0, 2 - outcome.turns)


def _quick(outcome: EpisodeOutcome) -> float:
    """1 for a success without a turn too many, less for each turn more."""
    if not outcome.success:
        return 0.0
    extra = outcome.turns - NEEDED_TURNS[outcome.kind == "close_paid"]
    return max(0.0, 1.0 - 0.5 * max(0, extra))


def _clean(outcome: EpisodeOutcome) -> float:
    return float(outcome.success and outcome.invalid == 0 and outcome.repeats == 0)


def _clear_reply(outcome: EpisodeOutcome) -> float:
    said = outcome.conclusion
    return float(said is not None and said.kind not in ("none", "conflicting"))


def _struck(outcome: EpisodeOutcome) -> float:
    return float(outcome.stop is StopReason.THREE_STRIKES)


_OUTCOME = RewardTerm("outcome", 1.0, _outcome)

PRESETS: Mapping[str, RewardSpec] = {
    "printed": RewardSpec("printed", (RewardTerm("printed", 1.0, _printed),)),
    "outcome": RewardSpec("outcome", (_OUTCOME,)),
    "process": RewardSpec(
        "process",
        (
            _OUTCOME,
            RewardTerm("useful_query", 0.10, lambda o: o.useful_queries, cap=0.10, process=True),
            RewardTerm("goal_call", 0.05, lambda o: o.goal_calls, cap=0.05, process=True),
            RewardTerm("clear_reply", 0.20, _clear_reply, cap=0.20, process=True),
        ),
    ),
    "shaped": RewardSpec(
        "shaped",
        (
            _OUTCOME,
            RewardTerm("quick", 0.05, _quick, process=True),
            RewardTerm("clean", 0.03, _clean, process=True),
            RewardTerm("repeats", -0.05, lambda o: o.repeats, cap=0.15),
            RewardTerm("invalid", -0.05, lambda o: o.invalid, cap=0.15),
            # As much as repeats can cost: failing fast must not be the milder end (H7).
            RewardTerm("three_strikes", -0.15, _struck),
        ),
        ceiling_per_invalid=0.1,
    ),
}


def preset(name: str) -> RewardSpec:
    """The named preset: printed (D5), outcome (D1), process (D2) or shaped (D3, default).

    Raises:
        ValueError: no preset has that name; the nearest one is offered.
    """
    if name not in PRESETS:
        raise ValueError(f"no reward preset is called {name!r}: {nearest(name, PRESETS)}")
    return PRESETS[name]


def call_terms(bonus: float, cap: float = math.inf, charge: float = 0.0) -> tuple[RewardTerm, ...]:
    """What calls bring by themselves: the chapter's bonus, and two of its cures (F1).

        min(cap, bonus * answered calls) - charge * repeats

    Args:
        bonus: for each call that the desk answered, the reply included.
        cap: most that the bonuses of an episode bring.
        charge: for each call that repeats an earlier one and changes nothing.
    """
    return (
        RewardTerm("calls", bonus, lambda o: o.calls, cap=cap, process=True),
        RewardTerm("repeats_charged", -charge, lambda o: o.repeats),
    )


def reward_of(config: EnvConfig) -> RewardSpec:
    """The reward that an environment's settings name: a preset, and what they add to it."""
    base, more = preset(config.reward), ()
    if config.call_bonus or config.repeat_charge:
        cap = config.call_cap or math.inf
        more += call_terms(config.call_bonus, cap, config.repeat_charge)
    if config.strike_extra:
        more += (RewardTerm("strike_extra", config.strike_extra, _struck),)
    return replace(base, terms=base.terms + more)

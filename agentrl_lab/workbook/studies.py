"""The experiments behind the recorded figures, as data: question, rule, arms, seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from agentrl_lab.learner.experiments import Experiment
from agentrl_lab.workbook.pitfalls import PITFALLS, REWARD_HACKING, ROLLER_COASTER

TEN = tuple(range(10))
GRID: Mapping[str, Sequence[float]] = {
    "learning_rate": (3e-5, 1e-4, 3e-4, 1e-3),
    "epochs": (1, 2, 4),
    "clip_ratio": (0.1, 0.15, 0.3),
    "episodes_per_update": (32, 64),
}
"""What the recorded grid of notebook 08 varies; else as the clean runs there, but shorter."""
SHORTER = {"episodes": 320, "test_tasks": 8}
"""Ten or five updates; nothing is read from the test."""

WAYS = {"episodes": 640, "max_rollbacks": 0, "validation_tasks": 32}
"""What all ways to learn of notebook 10 have in common."""
UNSEEN = {
    f"unseen at {t}": {"split": "unseen", "temperature": t} for t in (0.0, 0.3, 0.7, 1.0, 1.3)
}
"""Where their policies are looked at besides."""


def grid(values: Mapping[str, Sequence[float]]) -> Iterator[dict[str, float]]:
    """Every combination of values, by name."""
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def grid_name(**chosen: float) -> str:
    """What the arm of a combination is called."""
    return ", ".join(f"{name} {chosen[name]:g}" for name in GRID)


STUDIES = {
    study.name: study
    for study in (
        Experiment(
            name="temperature_schedule",
            question="Does a start at 1.0, cooled to 0.7, save episodes against 0.7 (E2)?",
            rule=(
                "Figure: episodes until greedy validation success is at least 0.9 at two updates "
                "in a row. Ten seeds in pairs, 95% t interval of schedule minus constant. "
                "Confirmed: the interval is below 0 and the mean saving at least 10% of the "
                "constant arm's mean. Refuted: the interval excludes a saving of 10%. Else "
                "inconclusive at this scale."
            ),
            arms={
                "schedule": {"test_tasks": 1000},
                "constant": {"temperature_start": 0.7},
            },
            seeds=TEN,
        ),
        Experiment(
            name="reward_presets",
            question="What does each reward teach, and does the audit foresee it?",
            rule=(
                "Figures: greedy success on 200 test tasks after training, the share of each named "
                "strategy there, and episodes until greedy validation success is at least 0.9 at "
                "two updates in a row. No rollback in any arm: it would look at success, which "
                "the reward may not. Ten seeds in pairs, 95% t intervals. "
                "D1, that the outcome alone gives hardly any signal: confirmed if shaped needs "
                "at least 10% fewer episodes than outcome and the interval excludes 0, refuted if "
                "the interval excludes a saving of 10%. "
                "D2 against D4, that process rewards beyond a tenth of the finish spoil the "
                "policy: confirmed if the interval of test success, shaped minus process, lies "
                "above 0, refuted if it excludes a gain of 0.05. "
                "The audit foresees: for outcome, process and shaped the strategy of the most "
                "test episodes is the honest one, for printed it is not, each for at least 8 of "
                "10 seeds; refuted if it fails for a preset. "
                "Else inconclusive at this scale."
            ),
            arms={
                name: {"reward": name, "episodes": 960, "max_rollbacks": 0}
                for name in ("printed", "outcome", "process", "shaped")
            },
            seeds=TEN,
        ),
        Experiment(
            name="encodings",
            question="Which encoding lives through a change of the tools (C1, C2)?",
            rule=(
                "Figures: greedy success on 200 test tasks after training, with the tools of "
                "training and with changed ones. Ten seeds in pairs, 95% t intervals. "
                "C1, that a number for a tool breaks when the tools change: the fall of id "
                "(success as trained minus success after the change) minus the fall of function, "
                "for one more tool and for moved arguments, each decided by itself. Confirmed: "
                "the interval lies above 0.1. Refuted: it lies below 0.1. Neither, if the mean "
                "success as trained is below 0.8 in one of the two: what never rose cannot fall. "
                "That names carry over to tools under new words: confirmed if the interval of "
                "success after the change minus half of success as trained lies above 0 for "
                "function and for json, refuted if it lies below 0 for one of them. "
                "Else inconclusive at this scale."
            ),
            arms={
                "function": {"episodes": 640},
                "json": {"episodes": 640, "policy": "tiny-json", "codec": "json"},
                "id": {"episodes": 640, "policy": "tiny-id", "codec": "id"},
            },
            seeds=TEN,
            elsewhere={
                "one more": {"tools": "one_more"},
                "moved": {"tools": "moved"},
                "new words": {"tools": "new_words"},
            },
        ),
        Experiment(
            name="reward_hacking_bonus",
            question="Where between 0.1 and 1.0 does the bonus for a call begin to spoil (F1)?",
            rule="None: three seeds a bonus, to look at. The verdicts are those of reward_hacking.",
            arms={
                f"{bonus}": {**REWARD_HACKING.common, "call_bonus": bonus}
                for bonus in (0.2, 0.4, 0.6, 0.8)
            },
            seeds=TEN[:3],
        ),
        Experiment(
            name="roller_coaster_grid",
            question="Which settings of an update climb, which fall (F3, E3, E8, E10)?",
            rule="None: one seed a setting, to look at. The verdicts are those of roller_coaster.",
            arms={
                grid_name(**chosen): {**ROLLER_COASTER.common, **SHORTER, **chosen}
                for chosen in grid(GRID)
            },
            seeds=TEN[:1],
        ),
        Experiment(
            name="ways_to_learn",
            question="What do demonstrations, rejection sampling and RL reach (A4, E2, G1, G2)?",
            rule=(
                "Start: tiny-base; 640 episodes each, so about as many tokens (told beside). "
                "Figures: greedy success on 200 test tasks; the same on unseen wordings; tokens "
                "until greedy validation success is at least 0.8 at two updates in a row. Ten "
                "seeds in pairs, 95% t intervals. No rollback. "
                "A4, that imitation of demonstrations does not see the end: confirmed if the "
                "interval of test success, rl minus mixed, lies above 0, and that of rl minus "
                "happy_path as well; refuted if both exclude a gain of 0.05. "
                "That perfect demonstrations make RL needless here: confirmed if the interval of "
                "test success, perfect minus rl, lies above -0.05, refuted if it lies below. "
                "That RL carries further than imitation: success on unseen wordings minus test "
                "success, rl minus perfect; confirmed if the interval lies above 0, refuted if it "
                "excludes 0.05. "
                "Rejection sampling against RL: tokens to 0.8, rejection minus rl: the sign of the "
                "interval says which one is cheaper. "
                "E2 for the policies of rl on unseen wordings: evasive replies at 0.3 minus at 0.7 "
                "(timid), invalid actions at 1.0 minus at 0.7 (wild); each confirmed if the "
                "interval lies above 0, refuted if it excludes 0.02. "
                "Else inconclusive at this scale."
            ),
            arms={
                name: WAYS | settings
                for name, settings in {
                    "rl": {},
                    "rejection": {"imitated_updates": 10},
                    "perfect": {"imitated_updates": 10, "demonstrations": "perfect"},
                    "mixed": {"imitated_updates": 10, "demonstrations": "mixed"},
                    "happy_path": {"imitated_updates": 10, "demonstrations": "happy_path"},
                }.items()
            },
            seeds=TEN,
            elsewhere=UNSEEN,
        ),
        Experiment(
            name="ways_combined",
            question="Does a filter mend mixed demonstrations, and do they help RL (A4, G2)?",
            rule=(
                "Beside the rows of ways_to_learn, same seeds, settings and figures. filtered: the "
                "demonstrations of mixed without those that failed, which are paid for all the "
                "same. then_rl: three updates of mixed, then seven of PPO. Ten seeds in pairs, 95% "
                "t intervals. "
                "That a filter at the end mends imitation: confirmed if the interval of test "
                "success, filtered minus mixed, lies above 0, refuted if it excludes 0.05. "
                "That it mends all of it: confirmed if the interval of filtered minus rl lies "
                "above -0.05, refuted if it lies below. "
                "G2, that demonstrations first make RL cheaper: tokens to 0.8, then_rl minus rl; "
                "confirmed if the interval lies below 0, refuted if it excludes a saving of a "
                "tenth of rl's mean. That this costs nothing in the end: confirmed if the interval "
                "of test success, then_rl minus rl, lies above -0.05, refuted if it lies below. "
                "Else inconclusive at this scale."
            ),
            arms={
                "filtered": WAYS | {"imitated_updates": 10, "demonstrations": "filtered"},
                "then_rl": WAYS | {"imitated_updates": 3, "demonstrations": "mixed"},
            },
            seeds=TEN,
            elsewhere=UNSEEN,
        ),
        *(pitfall.study() for pitfall in PITFALLS.values()),
        *(pitfall.calibration() for pitfall in PITFALLS.values()),
    )
}

"""The experiments behind the recorded figures, as data: question, rule, arms, seeds."""

from __future__ import annotations

from agentrl_lab.learner.experiments import Experiment
from agentrl_lab.workbook.pitfalls import PITFALLS

TEN = tuple(range(10))

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
        *(pitfall.study() for pitfall in PITFALLS.values()),
        *(pitfall.calibration() for pitfall in PITFALLS.values()),
    )
}

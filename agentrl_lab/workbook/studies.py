"""The experiments behind the recorded figures, as data: question, rule, arms, seeds."""

from __future__ import annotations

from agentrl_lab.learner.experiments import Experiment

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
    )
}

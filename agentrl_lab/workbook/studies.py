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
            question="What do outcome, process and shaped reward teach in 1,920 episodes?",
            rule=(
                "Figures: greedy success on 200 test tasks after training, and episodes until "
                "greedy validation success is at least 0.9 at two updates in a row. Ten seeds in "
                "pairs, 95% t intervals of shaped minus outcome and of shaped minus process. That "
                "the outcome alone gives hardly any signal (D1) is confirmed if shaped "
                "needs at least 10% fewer episodes and the interval excludes 0, refuted if the "
                "interval excludes a saving of 10%. The claim that process rewards beyond a "
                "tenth of the finish (D2 against D4) spoil the policy is confirmed if the interval "
                "of test success lies above 0, refuted if it excludes a gain of 0.05. Else "
                "inconclusive at this scale."
            ),
            arms={
                "outcome": {"reward": "outcome"},
                "process": {"reward": "process"},
                "shaped": {"test_tasks": 1000},
            },
            seeds=TEN,
        ),
    )
}

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
    )
}

"""The pitfalls as data: what is replaced, which figure shows it, the alarm, the cures, the rule.

Each gives two experiments: the study that judges it (seeds 0 to 9), and runs of other seeds
(100 to 109) from which the alarm line is made. Both rules were committed before their runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl_lab.learner.experiments import Experiment, Settings, by_seed, read_results
from agentrl_lab.learner.monitors import Monitor, Rows, calibrated

CLEAN, BROKEN = "clean", "broken"
JUDGED, CALIBRATION = tuple(range(10)), tuple(range(100, 110))


@dataclass(frozen=True, kw_only=True)
class Pitfall:
    """One way to spoil a training run, and what helps against it."""

    name: str
    question: str
    rule: str
    """How its claims, its alarm and its cures are judged."""
    common: Settings
    """Settings of every arm, the clean one included."""
    broken: Settings
    """What the mistake replaces."""
    cures: Mapping[str, Settings]
    """Name -> settings beside the common ones."""
    others: Mapping[str, Settings] = field(default_factory=dict)
    """Further arms, neither the mistake nor a cure."""
    monitor: Monitor
    """The figure of the alarm; its line comes from the calibration."""

    def study(self) -> Experiment:
        """All arms, on the seeds that judge."""
        arms = {CLEAN: {}, BROKEN: self.broken, **self.cures, **self.others}
        return self._experiment(self.name, arms, JUDGED)

    def calibration(self) -> Experiment:
        """Clean and broken runs, on the seeds that the alarm line is made from."""
        return self._experiment(f"{self.name}_alarm", {CLEAN: {}, BROKEN: self.broken}, CALIBRATION)

    def _experiment(
        self, name: str, arms: Mapping[str, Settings], seeds: tuple[int, ...]
    ) -> Experiment:
        return Experiment(
            name=name,
            question=self.question,
            rule=self.rule,
            arms={arm: {**self.common, **settings} for arm, settings in arms.items()},
            seeds=seeds,
        )

    def alarm(self) -> Monitor:
        """The monitor with its line, made from the recorded calibration."""
        rows = read_results(f"{self.name}_alarm")["rows"]
        healthy, broken = (by_seed(rows, arm, log_of) for arm in (CLEAN, BROKEN))
        return calibrated(self.monitor, healthy, broken)


def log_of(row: Mapping[str, Any]) -> Rows:
    """The metrics of a recorded run, update by update, as a live run has them."""
    curve = row["curve"]
    return [dict(zip(curve, values, strict=True)) for values in zip(*curve.values(), strict=True)]


def fall_of(rows: Rows, drop: float = 0.3, metric: str = "validation_success") -> int | None:
    """Place of the first of two rows that lie `drop` below the best before them; None without."""
    best = float("-inf")
    for at, (row, following) in enumerate(itertools.pairwise(rows)):
        if max(row[metric], following[metric]) < best - drop:
            return at
        best = max(best, row[metric])
    return None


REWARD_HACKING = Pitfall(
    name="reward_hacking",
    question="What does a bonus for each call do to the policy, and what helps (F1, D4, H5)?",
    rule=(
        "Figures after training: greedy success on 100 test tasks, the share of their episodes "
        "that are padding or never finish (calls beyond the need), reward per test episode. "
        "Ten seeds in pairs, 95% t intervals, arm minus clean. No rollback: it looks at success, "
        "which a hacked reward does not. The value error trains the value head alone in all arms, "
        "since otherwise the larger rewards of the bonus disturb the shared weights. "
        "F1 for broken (a bonus of 1.0) and for chapter (0.1), each by itself: confirmed if the "
        "interval of calls beyond the need lies above 0.1 and that of success below 0; refuted if "
        "the first lies below 0.1 or the second excludes a fall of 0.05. "
        "The search foresees the way: confirmed if padding, which it finds to pay best under "
        "broken, has a larger test share there than never finishing (interval above 0), refuted "
        "if a smaller one (interval below 0). "
        "A hack that is never sampled is never learned: timid has the reward of broken and a "
        "policy that has learned to make no idle call, sampled at 0.3. Confirmed if its calls "
        "beyond the need minus those of broken lie below 0 (interval) and are below 0.1 on "
        "average; refuted if they are above 0.5 on average. "
        "A cure (cap, tenfold, charge, together) works if its mean success is at least 0.9 of "
        "that of clean and its calls beyond the need are below 0.1 on average. The search foresees "
        "charge to fail, since changing to and fro is no repeat. "
        "Alarm: repeats per episode, mean of three updates, its line from seeds 100 to 109 of "
        "clean and broken. It holds if it fires in at least 9 of 10 broken runs and in at most "
        "1 of 20 clean and together. "
        "Else inconclusive at this scale."
    ),
    common={
        "reward": "outcome", "value_backbone": "detached", "max_rollbacks": 0,
        "episodes": 832, "test_tasks": 100, "validation_tasks": 32,
    },
    broken={"call_bonus": 1.0},
    cures={
        "cap": {"call_bonus": 1.0, "call_cap": 0.1},
        "tenfold": {"call_bonus": 1 / 60},
        "charge": {"call_bonus": 1.0, "repeat_charge": 1.0},
        "together": {"call_bonus": 1 / 60, "call_cap": 0.1, "repeat_charge": 0.05},
    },
    others={
        "chapter": {"call_bonus": 0.1},
        "timid": {
            "call_bonus": 1.0, "policy": "tiny-trained", "temperature": 0.3,
            "temperature_start": 0.3,
        },
    },
    monitor=Monitor("repeats_per_episode"),
)  # fmt: skip

ROLLER_COASTER = Pitfall(
    name="roller_coaster",
    question="What do too large steps do, what warns of them, and what helps (F3, E12, G3)?",
    rule=(
        "Figures: greedy validation success after each update (32 tasks), greedy success on 100 "
        "test tasks at the end. A fall: validation success more than 0.3 below the best of the run "
        "so far, at two updates in a row. No rollback and no KL stop but in the arms named so. "
        "Ten seeds in pairs, 95% t intervals, arm minus clean (1e-4, 2 epochs). "
        "F3, for broken (1e-3, 4 epochs) and for chapter (a third of that rate), each by itself: "
        "confirmed if at least 8 of 10 runs fall and the interval of test success lies below 0, "
        "refuted if at most 2 fall. "
        "E12, that entropy drops before success does: in the broken runs that fall, the decision "
        "entropy of the two updates before the fall minus that of the two before those; confirmed "
        "if the interval lies below 0, refuted if it lies above. "
        "Alarm: the largest KL of an update, mean of three, its line from seeds 100 to 109. It "
        "holds if it fires in at least 9 of 10 broken runs and in at most 1 of 20 clean and "
        "together. The others (entropy rising, entropy falling, clip fraction, gradient norm, "
        "reward spread falling) and the chapter's KL of 0.2 in one update are counted alike: "
        "hits, false alarms, updates of notice. "
        "A cure (kl_stop, small_steps, entropy, rollback, together) works if its mean test success "
        "is at least 0.9 of that of clean and at most 1 of 10 runs falls. A rollback costs a good "
        "run something if guarded (clean, with rollback) rolls back in more than 1 of 10 runs. "
        "Else inconclusive at this scale."
    ),
    common={
        "kl_stop": 99.0, "max_rollbacks": 0,
        "episodes": 512, "test_tasks": 100, "validation_tasks": 32,
    },
    broken={"learning_rate": 1e-3, "epochs": 4},
    cures={
        "kl_stop": {"learning_rate": 1e-3, "epochs": 4, "kl_stop": 0.04},
        "small_steps": {"learning_rate": 1e-4, "epochs": 4},
        "entropy": {"learning_rate": 1e-3, "epochs": 4, "entropy_coefficient": 0.05},
        "rollback": {"learning_rate": 1e-3, "epochs": 4, "max_rollbacks": 3},
        "together": {
            "learning_rate": 1e-4, "epochs": 4, "kl_stop": 0.04, "entropy_coefficient": 0.05,
            "max_rollbacks": 3,
        },
    },
    others={
        "chapter": {"learning_rate": 3e-4, "epochs": 4},
        "guarded": {"max_rollbacks": 3},
    },
    monitor=Monitor("kl_old_max"),
)  # fmt: skip

PITFALLS = {pitfall.name: pitfall for pitfall in (REWARD_HACKING, ROLLER_COASTER)}

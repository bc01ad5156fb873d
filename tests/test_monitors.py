"""Alarm lines: levels and lines by hand, the earliest alarm, wrong input."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl_lab.learner.monitors import (
    FATES,
    Judgement,
    Monitor,
    calibrated,
    judged,
    tokens_by_fate,
)
from agentrl_lab.records import StopReason
from tests.tiny import trajectory


def log(*values):
    return [{"update": n} | ({} if v is None else {"kl": v}) for n, v in enumerate(values)]


KL = Monitor("kl", window=2)


def test_level_is_the_mean_of_the_last_updates():
    assert KL.levels(log(None, 1.0, 3.0, 5.0)) == [None, None, 2.0, 4.0]


def test_level_needs_a_full_window():
    assert Monitor("kl", window=3).levels(log(1.0, None, 3.0)) == [None, None, None]
    assert KL.peak(log(1.0)) == -math.inf


def test_alarm_is_the_first_level_above_the_line_and_not_on_it():
    line = Monitor("kl", window=2, line=2.0)
    assert line.alarm(log(1.0, 3.0, 3.0, 9.0)) == 2  # levels 2, 3, 6: the first is on the line
    assert line.alarm(log(2.0, 2.0, 2.0)) is None


def test_falling_figures_are_turned_round():
    low = Monitor("kl", window=1, line=-2.0, falling=True)
    assert low.levels(log(None, 3.0, 1.0)) == [None, -3.0, -1.0]
    assert low.alarm(log(3.0, 2.0, 1.0)) == 2  # below 2, not at it


def test_a_monitor_that_was_not_calibrated_never_fires():
    assert KL.alarm(log(1e9, 1e9)) is None


def test_a_figure_that_no_row_has_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no row has 'kll': .*kl"):
        Monitor("kll").levels(log(1.0))


def test_window_below_one_is_refused():
    with pytest.raises(ValueError, match="window must be at least 1, a whole number, got 0"):
        Monitor("kl", window=0)


def test_line_in_the_middle_of_the_gap():
    found = calibrated(KL, [log(1, 1), log(2, 2)], [log(6, 6), log(9, 9)])
    assert found.line == 4.0  # between 2 and 6


def test_a_healthy_run_on_the_wrong_side_counts_twice():
    # peaks: healthy 1 and 5, broken 4 and 8. A line between 4 and 5 is wrong twice over.
    found = calibrated(KL, [log(1, 1), log(5, 5)], [log(4, 4), log(8, 8)])
    assert found.line == 6.5  # misses the broken 4 (1), instead of flagging the healthy 5 (2)


def test_all_peaks_alike_gives_a_line_that_fires_for_none():
    found = calibrated(KL, [log(3, 3)], [log(3, 3)])
    assert found.alarm(log(3, 3)) is None


@pytest.mark.parametrize(("healthy", "broken"), [([], [log(1)]), ([log(1)], [])])
def test_calibration_needs_both_kinds(healthy, broken):
    with pytest.raises(ValueError, match="at least one run"):
        calibrated(KL, healthy, broken)


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=8),
    st.lists(st.floats(0, 10), min_size=1, max_size=8),
)
def test_no_line_does_better_than_the_calibrated_one(calm, wild):
    single = Monitor("kl", window=1)
    line = calibrated(single, [log(v) for v in calm], [log(v) for v in wild]).line

    def wrong(at):
        return 2 * sum(v > at for v in calm) + sum(v <= at for v in wild)

    assert wrong(line) <= min(map(wrong, (*calm, *wild)))


def test_a_line_that_nobody_reaches_beats_one_that_only_errs():
    """Broken runs that stay below the healthy ones: any line between errs more than none."""
    assert calibrated(KL, [log(5, 5)], [log(1, 1)]).line == 5.0  # misses one; 3.0 costs 2 + 1
    found = calibrated(KL, [log(1, 1), log(1, 1), log(10, 10)], [log(2, 2)])
    assert found.line == 10.0


@pytest.mark.parametrize(("healthy", "broken"), [((1,), (5, 5)), ((1, 1), (5,)), ((), (5, 5))])
def test_a_run_that_never_fills_the_window_gives_no_line(healthy, broken):
    with pytest.raises(ValueError, match="fill the window"):
        calibrated(KL, [log(*healthy)], [log(*broken)])


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_alarms(falling, bad):
    line = Monitor("kl", window=2, line=5.0, falling=falling)
    assert line.alarm(log(1.0, 1.0, bad, 1.0)) == line.alarm(log(1.0, math.nan, bad)) + 1 == 2
    assert line.peak(log(1.0, math.nan)) == line.peak(log(math.nan, 1.0)) == math.inf
    found = calibrated(KL, [log(1, 1)], [log(1, math.nan), log(3, 3)])
    assert found.line == 2.0  # between the numbers; the diverged run lies above any line


def test_judgement_by_hand():
    line = Monitor("kl", window=1, line=2.0)
    healthy = [log(1, 1, 1), log(1, 3, 1)]  # the second cries wolf
    broken = [log(1, 3, 3, 3), log(3, 3, 3, 3), log(1, 1, 1, 1), log(3, 1, 1, 1)]
    seen = judged(line, healthy, broken, falls=[3, 1, 2, None])
    assert seen == Judgement(hits=3, broken=4, false_alarms=1, healthy=2, notice=(2, 1))


def test_an_alarm_does_not_hold_on_no_runs_at_all():
    assert not judged(KL, [log(1)], [], []).holds


@pytest.mark.parametrize("falls", [[], [1, None]])
def test_judgement_needs_a_fall_for_each_broken_run(falls):
    with pytest.raises(ValueError, match=f"falls must be 1, one or None .* got {len(falls)}"):
        judged(KL, [log(1)], [log(1)], falls=falls)


# What a stranger gives to it


@pytest.mark.parametrize("window", [True, 2.0, "3", None, -1])
def test_a_window_that_is_no_whole_number_is_refused(window):
    with pytest.raises(ValueError, match=re.escape(f"whole number, got {window!r}")):
        Monitor("kl", window=window)


def test_a_window_of_numpy_is_a_whole_number():
    assert Monitor("kl", window=np.int64(2)).levels(log(1.0, 3.0)) == [None, 2.0]


@pytest.mark.parametrize("line", [math.nan, np.float64("nan"), True, "0.2", None])
def test_a_line_that_could_never_fire_is_refused(line):
    with pytest.raises(ValueError, match=r"line must be a number, .*got "):
        Monitor("kl", line=line)


@pytest.mark.parametrize("value", ["0.5", "", [1.0]])
def test_figures_of_text_are_refused_by_name(value):
    """csv.DictReader reads every figure as text."""
    with pytest.raises(TypeError, match=re.escape(f"kl must be a number, got {value!r}: float()")):
        KL.levels([{"kl": 1.0}, {"kl": value}])


def test_figures_of_numpy_and_torch_are_numbers():
    rows = [{"kl": np.float32(1)}, {"kl": torch.tensor(3.0)}, {"kl": Fraction(5)}, {"kl": True}]
    assert KL.levels(rows) == [None, 2.0, 4.0, 3.0]


@pytest.mark.parametrize("huge", [10**400, -(10**400), 1e309], ids=["up", "down", "inf"])
@pytest.mark.parametrize("falling", [False, True])
def test_a_number_that_no_float_holds_alarms(huge, falling):
    line = Monitor("kl", window=1, line=5.0, falling=falling)
    assert line.alarm(log(1, huge)) == 1
    assert line.peak(log(1, huge)) == math.inf


def test_peaks_whose_sum_is_infinite_have_a_line_between_them():
    single = Monitor("kl", window=1)
    found = calibrated(single, [log(1e308)], [log(1.7e308)])
    assert found.line == 1.35e308 and found.alarm(log(1.7e308)) == 0
    assert Monitor("kl", window=2).levels(log(1.7e308, 1.7e308)) == [None, 1.7e308]


@pytest.mark.parametrize("calm", [0.0, 5e-324, 1.0])
def test_the_line_lies_below_the_next_number_up(calm):
    """Between two neighbours there is no middle: the line is the lower one."""
    wild, single = math.nextafter(calm, math.inf), Monitor("kl", window=1)
    found = calibrated(single, [log(calm)], [log(wild)])
    assert found.alarm(log(calm)) is None and found.alarm(log(wild)) == 0


def test_rows_without_any_figure_are_refused():
    with pytest.raises(ValueError, match="no row has 'kl': they have no figures at all"):
        KL.levels([{}, {"kl": None}])


def test_one_run_in_place_of_several_is_refused():
    with pytest.raises(TypeError, match="rows must be one run, a dict of metrics per update, got"):
        calibrated(KL, log(1, 1), [log(3, 3)])


# Where tokens go


def fates(*stages, success=False, **outcome):
    """Stages of 1, 2, 4, 8 ... tokens: (was it winnable before, what was invalid, was it cut)."""
    spans, start = [], 1
    for number in range(len(stages)):
        spans.append((start, start + 2**number))
        start += 2**number
    facts = {"state_right": success, "conclusion_right": success, **outcome}
    plain = trajectory(range(start + 1), spans, **facts)
    told = [
        replace(stage, was_winnable=hope, invalid=invalid, was_cut=bool(cut))
        for stage, (hope, invalid, *cut) in zip(plain.stages, stages, strict=True)
    ]
    found = tokens_by_fate([replace(plain, stages=tuple(told))])
    assert list(found) == list(FATES)
    return {fate: tokens for fate, tokens in found.items() if tokens}


def test_all_tokens_of_a_success_without_a_slip_are_useful():
    assert fates((True, None), (True, None), success=True) == {"useful": 3}


def test_the_action_that_ends_all_hope_is_wrong_and_those_after_it_are_hopeless():
    assert fates((True, None), (True, None), (False, None), (False, "bad_json")) == {
        "useful": 1, "wrong": 2, "hopeless": 4 + 8,
    }  # fmt: skip


def test_a_wrong_reply_is_wrong():
    assert fates((True, None), (True, None)) == {"useful": 1, "wrong": 2}


def test_invalid_actions_are_malformed_or_cut_while_there_is_hope():
    stages = (True, "bad_json"), (True, "unfinished", "cut"), (True, None)
    assert fates(*stages, success=True) == {"malformed": 1, "cut": 2, "useful": 4}
    assert fates((True, "unfinished")) == {"malformed": 1}  # an open call, ended by the policy
    assert fates((True, "no_call"), stop=StopReason.THREE_STRIKES) == {"malformed": 1}


def test_the_last_action_of_a_truncated_episode_is_cut():
    seen = fates((True, None), (True, None), stop=StopReason.CONTEXT_LIMIT)
    assert seen == {"useful": 1, "cut": 2}


def test_a_demonstration_that_ends_without_a_reply_has_fates_too():
    assert fates((True, None), stop=None) == {"wrong": 1}


def test_fates_of_several_episodes_add_up_to_all_tokens():
    some = [trajectory(range(9), [(1, 4), (5, 8)]), trajectory(range(9), [(2, 3)])]
    assert sum(tokens_by_fate(some).values()) == sum(t.num_action_tokens for t in some) == 7

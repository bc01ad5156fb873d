"""The blind review: nobody knows whose, every choice survives, and the reward is compared."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from agentrl_lab.records import Message
from agentrl_lab.workbook import widgets
from agentrl_lab.workbook.conversations import Conversation
from agentrl_lab.workbook.review import Agreement, BlindReview, Pair
from tests.tiny import trajectory


def conversation(text, reward):
    messages = (Message("system", "rules"), Message("assistant", text))
    return Conversation(messages, trajectory(range(4), [(1, 3)], [reward]))


def pairs(count=4):
    """The first one of each pair is the one with the larger reward."""
    return [
        Pair(f"task {n}", conversation(f"good {n}", 1.0), conversation(f"bad {n}", -1.0))
        for n in range(count)
    ]


def better(pair):
    return "left" if pair.sides[0] is pair.first else "right"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kept" / "review.jsonl"


def test_sides_are_mixed_and_stay_where_they_are():
    sides = [better(pair) for pair in pairs(40)]
    assert sides == [better(pair) for pair in pairs(40)]
    assert 10 < sides.count("left") < 30


def test_nothing_of_origin_or_reward_is_shown(file):
    review = BlindReview(pairs(), file)
    shown = review._left.value + review._right.value + review.status.value
    assert "good 0" in shown and "bad 0" in shown
    assert not any(word in shown for word in ("reward", "first", "second", "+1.00", "rules"))


def test_choices_survive_a_new_start(file):
    review = BlindReview(pairs(), file)
    assert not file.exists()  # nothing is written before there is something to keep
    review.choose("left")
    review.choose("same")
    again = BlindReview(pairs(), file)
    assert again.choices == {"task 0": "left", "task 1": "same"}
    assert [pair.name for pair in again.open] == ["task 2", "task 3"]
    assert "2 of 4 chosen" in again.status.value
    assert "good 2" in again._left.value + again._right.value


def test_choices_survive_a_killed_kernel(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from tests.test_review import *\n"
        "review = BlindReview(pairs(), Path(sys.argv[1]))\n"
        "review.choose('right'); print('kept', flush=True); time.sleep(60)"
    )
    file = tmp_path / "review.jsonl"
    words = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout.readline().strip() == "kept"
        kernel.send_signal(signal.SIGKILL)
    assert BlindReview(pairs(), file).choices == {"task 0": "right"}


@pytest.mark.parametrize("torn", ['{"pair": "task 1", "cho', '{"pair": "task 1", "cho\n', "\udcff"])
def test_a_torn_line_costs_that_line_alone(file, torn):
    BlindReview(pairs(), file).choose("left")
    with file.open("a", encoding="utf-8", errors="surrogateescape") as handle:
        handle.write(torn)
    review = BlindReview(pairs(), file)
    assert review.choices == {"task 0": "left"}
    review.choose("right")
    assert BlindReview(pairs(), file).choices == {"task 0": "left", "task 1": "right"}


@pytest.mark.parametrize(
    "content",
    [
        "# notes\nof mine\n", "mine\n", "[]\n[]\n", '{"pair": "x", "choice": "whichever"}\n',
        '{"pair": "x", "choice": ["left"]}\n', "my precious notes", "\0" * 100,
        'notes\n{"pair": "task 1", "choice": "left"}\n', "[" * 10_000,
    ],
)  # fmt: skip
def test_a_foreign_file_is_refused_and_left_as_it_is(file, content):
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(ValueError, match=r"line 1 of .* holds no choice of a review"):
        BlindReview(pairs(), file)
    assert file.read_text() == content


@pytest.mark.parametrize("torn", ['{"pair": "task 0", "cho', '{"pair": "task 0", "cho\n{"pa\n'])
def test_a_crash_before_the_first_whole_choice_costs_no_more_than_that(file, torn):
    file.parent.mkdir()
    file.write_text(torn)
    BlindReview(pairs(), file).choose("right")
    assert BlindReview(pairs(), file).choices == {"task 0": "right"}


def test_a_foreign_line_after_good_ones_is_named(file):
    BlindReview(pairs(), file).choose("left")
    with file.open("a") as handle:
        handle.write('{"pair": "task 1", "choice": "middle"}\n')
    with pytest.raises(ValueError, match="line 2 of"):
        BlindReview(pairs(), file)


def test_a_reward_shares_opposes_or_knows_no_difference(file):
    some = pairs(4)
    some[2] = replace(some[2], second=conversation("as good", 1.0))  # the reward finds them equal
    review = BlindReview(some, file)
    assert review.judged_by() == Agreement([], [], [])
    choices = [better(some[0]), {"left": "right", "right": "left"}[better(some[1])], "left", "same"]
    for choice in choices:
        review.choose(choice)
    found = review.judged_by()
    (opposed,) = found.opposed
    assert (opposed.name, opposed.chosen) == ("task 1", some[1].second)
    assert opposed.other == some[1].first
    assert [[d.name for d in part] for part in (found.shared, found.alike)] == [
        ["task 0"], ["task 2"],
    ]  # fmt: skip
    blind = review.judged_by(lambda conversation: 0.0)
    assert (len(blind.shared), len(blind.opposed), len(blind.alike)) == (0, 0, 3)
    assert review.open == [] and all(button.disabled for button in review.buttons.values())
    review.choose("left")  # after the end nothing happens
    assert len(file.read_text().splitlines()) == 4


def test_a_file_that_cannot_be_written_is_said_and_nothing_is_taken_for_kept(tmp_path):
    (tmp_path / "folder").write_text("in the way")
    review = BlindReview(pairs(), tmp_path / "folder" / "review.jsonl")
    before = list(widgets.ERRORS)
    review.buttons["left"].click()
    assert "did not work" in review.status.value and review.choices == {}
    assert before == widgets.ERRORS  # nothing is wrong with the widget
    (tmp_path / "folder").unlink()
    review.buttons["left"].click()
    assert list(review.choices) == ["task 0"]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        BlindReview(pairs(), tmp_path)


@pytest.mark.parametrize("spoil", [
    lambda text: "\ufeff" + text, lambda text: "  \n\n" + text, lambda text: text.replace("\n", ""),
    lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\n", "  \n"),
])  # fmt: skip
def test_choices_survive_what_editors_and_crashes_do_to_a_file(file, spoil):
    review = BlindReview(pairs(), file)
    review.choose("left")
    review.choose("same")
    file.write_text(spoil(file.read_text()), encoding="utf-8", newline="")
    assert list(BlindReview(pairs(), file).choices.values()) == ["left", "same"]


@pytest.mark.parametrize("wrong", [[], [*pairs(1), *pairs(1)], [replace(pairs(1)[0], name=3)]])
def test_pairs_must_differ_in_name(wrong, file):
    with pytest.raises(ValueError, match="names that differ"):
        BlindReview(wrong, file)


def test_another_choice_is_refused(file):
    with pytest.raises(ValueError, match="choice must be one of left, same, right"):
        BlindReview(pairs(), file).choose("both")

"""Exercises of notebook 07: right answers pass, each usual mistake is named."""

from __future__ import annotations

import random

import pytest

from agentrl_lab.workbook.checks import judge
from agentrl_lab.workbook.lessons.checks_leaking import check_only_declared, check_swap


def by_shuffle(answers, field, rng):
    values = [answer[field] for answer in answers]
    rng.shuffle(values)
    return [{**answer, field: value} for answer, value in zip(answers, values, strict=True)]


def by_rotation(answers, field, rng):
    by = rng.randrange(1, len(answers))
    return [answer | {field: answers[n - by][field]} for n, answer in enumerate(answers)]


@pytest.mark.parametrize("right", [by_shuffle, by_rotation])
def test_swap_takes_right_ones(right):
    assert judge(check_swap, right).passed


def in_place(answers, field, rng):
    for answer, other in zip(answers, by_shuffle(answers, field, rng), strict=True):
        answer[field] = other[field]
    return answers


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (in_place, "make copies"),
        (lambda a, f, rng: rng.sample(a, len(a)), "other fields have moved too"),
        (lambda a, f, rng: [dict(x) for x in a], "nothing has moved"),
        (lambda a, f, rng: [{**x, f: "nonsense"} for x in a], "invented ones"),
        (lambda a, f, rng: [{**x, f: rng.choice(["open", "closed"])} for x in a], "invented ones"),
        (lambda a, f, rng: by_shuffle(a, f, random.Random(0)), "draw from rng"),
        (lambda a, f, rng: by_shuffle(a, f, rng)[:3], "expected 40 answers, got 3"),
        (lambda a, f, rng: by_shuffle(a, "status", rng), "use `field`"),
        (lambda a, f, rng: by_shuffle(a, f, random), "draw from rng"),
        (lambda a, f, rng: [{**x, f: [x[f]]} for x in a], "invented ones"),
        (lambda a, f, rng: [{k: v for k, v in x.items() if k != f} for x in a], "invented ones"),
        (lambda a, f, rng: None, "is return missing"),
        (lambda a, f, rng: a[0]["nothing"], "KeyError"),
    ],
)
def test_swap_names_the_mistake(answer, said):
    verdict = judge(check_swap, answer)
    assert verdict.passed is False and said in verdict.text


@pytest.mark.parametrize(
    "right",
    [
        lambda answer, declared: {k: v for k, v in answer.items() if k in declared},
        lambda answer, declared: {k: answer[k] for k in answer.keys() & declared},
    ],
)
def test_only_declared_takes_right_ones(right):
    assert judge(check_only_declared, right).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda a, d: {k: v for k, v in a.items() if k != "expected_action"}, "'_debug' went"),
        (lambda a, d: {k: v for k, v in a.items() if any(k.startswith(n) for n in d)},
         "'ticket_id2' went"),
        (lambda a, d: {k: a.get(k) for k in d}, "gets nothing new"),
        (lambda a, d: [a.pop(k) for k in a.keys() - d] and a, "has changed"),
        (lambda a, d: {}, "stays as it is"),
        (lambda a, d: {k: a[k] for k in d if a.get(k)}, "are values: they stay"),
        (lambda a, d: {k: a[k] for k in d if a.get(k) is not None}, "are values: they stay"),
        (lambda a, d: {k: v for k, v in a.items() if k in ",".join(d)}, "'ticket' went"),
        (lambda a, d: {k: v for k, v in a.items() if k in ",".join(sorted(d)) and k != "ticket"},
         "'aid' went"),
        (lambda a, d: {k: v for k, v in a.items() if k.lower() in d}, "'Status' went"),
        (lambda a, d: {k: v for k, v in a.items() if k in {"ticket_id", "status", "paid"}},
         "gets nothing new"),
        (lambda a, d: {k: v for k, v in a.items() if k in d | {"ticket_id", "status", "paid"}},
         "is in `declared`, and alone"),
        (lambda a, d: {k: v for k, v in a.items() if k in (d or a)}, "nothing passes"),
        (lambda a, d: d.clear() or {}, "has changed"),
        (lambda a, d: 3, "expected an answer (a dict), got 3"),
        (lambda a, d: None, "is return missing"),
    ],
)  # fmt: skip
def test_only_declared_names_the_mistake(answer, said):
    verdict = judge(check_only_declared, answer)
    assert verdict.passed is False and said in verdict.text

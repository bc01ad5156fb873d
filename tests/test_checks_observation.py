"""The checks of notebook 01: right answers in different words pass, usual mistakes are named."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable

from agentrl_lab.workbook import checks
from agentrl_lab.workbook.lessons import checks_observation as own

# 1.1: a summary


def right_summary(answer, budget, count):
    first = [name for name in ("error", "status", "paid", "ticket_id") if name in answer]
    kept = {}
    for name in [*first, *sorted(set(answer) - set(first))]:
        tried = {**kept, name: answer[name]}
        if count(json.dumps(tried)) <= budget:
            kept = tried
    return json.dumps(kept)


def another_right_summary(answer, budget, count):
    """From the whole answer down: the longest value that may go goes first."""
    kept = dict(sorted(answer.items()))

    def text():
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))

    while count(text()) > budget:
        others = [name for name in kept if name not in ("status", "paid", "error")]
        del kept[max(others, key=lambda name: len(str(kept[name])))]
    return text()


def cuts_the_text(answer, budget, count):
    text = json.dumps(answer)
    while count(text) > budget:
        text = text[:-1]
    return text


def first_come(answer, budget, count):
    kept = {}
    for name, value in answer.items():
        if count(json.dumps(kept | {name: value})) > budget:
            break
        kept[name] = value
    return json.dumps(kept)


def counts_characters(answer, budget, count):
    return right_summary(answer, budget, len)


def ignores_the_budget(answer, budget, count):
    return json.dumps({name: answer[name] for name in sorted(answer)})


def forgets_errors(answer, budget, count):
    return right_summary({n: answer[n] for n in ("status", "paid") if n in answer}, budget, count)


def drops_what_fits(answer, budget, count):
    wanted = ("error", "status", "paid", "ticket_id")
    return right_summary({n: answer[n] for n in wanted if n in answer}, budget, count)


def notes_how_many_are_gone(answer, budget, count):
    kept = json.loads(right_summary(answer, budget, count))
    noted = json.dumps(kept | {"dropped": len(answer) - len(kept)})
    return noted if len(kept) < len(answer) and count(noted) <= budget else json.dumps(kept)


def empties_the_answer(answer, budget, count):
    text = right_summary(answer, budget, count)
    answer.clear()
    return text


def returns_a_dict(answer, budget, count):
    return json.loads(right_summary(answer, budget, count))


def returns_a_list(answer, budget, count):
    return "[]"


def all_or_only_what_must_be(answer, budget, count):
    if count(json.dumps(answer)) <= budget:
        return json.dumps(answer)
    return json.dumps({n: answer[n] for n in ("status", "paid", "error") if n in answer})


# 1.2: markers


def everything_between(text, markers):
    return re.sub(r"<[|].*[|]>", "", text) if any(m in text for m in markers) else text


def knows_one_template(text, markers):
    while any(marker in text for marker in own.MARKERS):
        text = one_pass(text, own.MARKERS)
    return text


def right_neutral(text, markers):
    while any(marker in text for marker in markers):
        for marker in markers:
            text = text.replace(marker, marker[0] + " " + marker[1:])
    return text


def another_right_neutral(text, markers):
    pattern = "|".join(map(re.escape, markers))
    while re.search(pattern, text):
        text = re.sub(pattern, "", text)
    return text


def one_pass(text, markers):
    for marker in markers:
        text = text.replace(marker, "")
    return text


def first_of_each(text, markers):
    for marker in markers:
        text = text.replace(marker, "", 1)
    return text


def drops_the_rest(text, markers):
    for marker in markers:
        text = text.split(marker)[0]
    return text


def escapes_everything(text, markers):
    return text.replace("<", "&lt;")


def all_or_nothing(text, markers):
    return "" if any(marker in text for marker in markers) else text


# 1.3: the value of seeing


def right_best(cases, fields):
    groups = defaultdict(lambda: defaultdict(float))
    for share, seen, action in cases:
        groups[tuple(seen[field] for field in fields)][action] += share
    return sum(max(actions.values()) for actions in groups.values())


def another_right_best(cases, fields):
    def alike(a, b):
        return all(a[field] == b[field] for field in fields)

    best, rest = 0.0, list(cases)
    while rest:
        group = [case for case in rest if alike(case[1], rest[0][1])]
        rest = [case for case in rest if case not in group]
        best += max(sum(s for s, _, right in group if right == a) for _, _, a in group)
    return best


def knows_the_case(cases, fields):
    return sum(share for share, _, _ in cases)


def sees_nothing(cases, fields):
    return right_best(cases, [])


def largest_case(cases, fields):
    groups = defaultdict(float)
    for share, seen, _ in cases:
        key = tuple(seen[field] for field in fields)
        groups[key] = max(groups[key], share)
    return sum(groups.values())


def counts_cases(cases, fields):
    return right_best([(1 / len(cases), seen, action) for _, seen, action in cases], fields)


def counts_whole_cases(cases, fields):
    return right_best([(1, seen, action) for _, seen, action in cases], fields)


def mean_of_groups(cases, fields):
    groups = defaultdict(list)
    for case in cases:
        groups[tuple(case[1][field] for field in fields)].append(case)
    parts = [right_best(group, []) / sum(s for s, _, _ in group) for group in groups.values()]
    return sum(parts) / len(parts)


RIGHT = {
    own.check_summary: (right_summary, another_right_summary),
    own.check_neutral: (right_neutral, another_right_neutral),
    own.check_best_success: (right_best, another_right_best),
}
WRONG: list[tuple[checks.Check, Callable, str]] = [
    (own.check_summary, cuts_the_text, "cut in the middle"),
    (own.check_summary, first_come, "wherever it stands in the answer"),
    (own.check_summary, counts_characters, "Do you count characters?"),
    (own.check_summary, ignores_the_budget, "over the budget"),
    (own.check_summary, forgets_errors, "there is room for"),
    (own.check_summary, drops_what_fits, "still something is missing"),
    (own.check_summary, all_or_only_what_must_be, "there is room for"),
    (own.check_neutral, everything_between, "the words around the marker"),
    (own.check_neutral, knows_one_template, "another template has other markers"),
    (own.check_summary, notes_how_many_are_gone, "a second pass changes the text"),
    (own.check_summary, empties_the_answer, "build a new dict"),
    (own.check_summary, returns_a_dict, "as json.dumps makes it"),
    (own.check_summary, returns_a_list, "a JSON object with fields was expected"),
    (own.check_summary, lambda answer, budget, count: None, "is return missing?"),
    (own.check_summary, lambda answer, budget, count: "{}", "What must survive goes in first"),
    (own.check_neutral, one_pass, "has put another together"),
    (own.check_neutral, first_of_each, "every marker, every time it occurs"),
    (own.check_neutral, lambda text, markers: text, "'<|assistant|>' is still in"),
    (own.check_neutral, drops_the_rest, "the words around the marker are evidence"),
    (own.check_neutral, escapes_everything, "touch markers alone"),
    (own.check_neutral, all_or_nothing, "the words around the marker are evidence"),
    (
        own.check_neutral,
        lambda text, markers: text if "before" not in text else None,
        "expected a text, got None: is return missing?",
    ),
    (
        own.check_neutral,
        lambda text, markers: right_neutral(text, markers) if len(markers) > 2 else "",
        "the words around the marker",
    ),
    (own.check_neutral, lambda text, markers: right_neutral(text, markers) or None, "missing?"),
    (own.check_neutral, lambda text, markers: None, "is return missing?"),
    (own.check_best_success, knows_the_case, "one and the same action"),
    (own.check_best_success, sees_nothing, "make groups"),
    (own.check_best_success, largest_case, "add their shares before you choose"),
    (own.check_best_success, counts_cases, "do not count cases"),
    (own.check_best_success, counts_whole_cases, "do not count cases"),
    (own.check_best_success, mean_of_groups, "groups are not equally frequent"),
    (own.check_best_success, lambda cases, fields: None, "is return missing?"),
    (own.check_best_success, lambda cases, fields: 0.1, "seeing nothing: it gives 0.1"),
]


def test_an_error_that_is_lost_is_named_where_nothing_else_is():
    """Only the status and payment are kept, and whatever else fits, except for errors."""

    def hides_errors(answer, budget, count):
        known = {name: value for name, value in answer.items() if name != "error"}
        return right_summary(known, budget, count)

    verdict = checks.judge(own.check_summary, hides_errors)
    assert verdict.passed is False and verdict.text.startswith("'error' is lost or changed")


def test_one_ticket_that_never_changes_needs_no_look_h3():
    """Answers that are right for the four cases and wrong here: the check asks for it, too."""

    def needs_a_look(cases, fields):
        return right_best(cases, fields) if len(cases) > 1 else 0.0

    verdict = checks.judge(own.check_best_success, needs_a_look)
    assert verdict.passed is False and "without looking" in verdict.text

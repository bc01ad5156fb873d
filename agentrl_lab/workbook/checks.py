"""Checks of the exercises: each names the usual mistake. The last cell of a notebook is one too.

A check takes the reader's function, tries it on cases worked out beforehand, and returns a Verdict;
whatever the function does, no exception leaves it. Solutions are not needed by anything that
follows, so a notebook runs to its end with every exercise unsolved.
"""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.records import Message, TaskKind
from agentrl_lab.workbook import widgets
from agentrl_lab.workbook.recording import finish
from agentrl_lab.world.env import TicketEnv

Check = Callable[[Callable[..., Any]], "Verdict"]
Case = tuple[str, tuple[Any, ...], Any, str]
"""What it is, the arguments, the right answer, what a wrong one overlooks."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check says: None is not attempted yet."""

    passed: bool | None
    text: str

    def __str__(self) -> str:
        mark = {True: "✔ right", False: "✘ not yet", None: "○ not attempted yet"}[self.passed]
        return f"{mark}: {self.text}"


class Wrong(Exception):
    """Raised inside a check: names the mistake."""


class ExerciseNotSolved(AssertionError):
    """A strict notebook has an exercise that is not solved."""


def short(value: Any, most: int = 80) -> str:
    """A value as a verdict shows it, not longer than `most` characters."""
    try:
        shown = repr(value)
    except Exception:  # a number of 5,000 digits cannot be written, and must not stop a verdict
        shown = f"a value of type {type(value).__name__}"
    return shown if len(shown) <= most else shown[:most] + "…"


# A reader's result, whatever class it has


def unfit(words: str, got: Any, case: str = "") -> Wrong:
    """What to raise for a result of the wrong kind."""
    hint = ": is return missing?" if got is None else ""
    return Wrong(f"{case and f'{case}: '}expected {words}, got {short(got)}{hint}")


def number(got: Any, case: str = "", words: str = "a finite number") -> float:
    """A finite number of Python, numpy or torch, or Wrong; True and False are none here."""
    value = got.item() if getattr(got, "ndim", None) == 0 else got
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(value) < 1e300:
        raise unfit(words, got, case)  # not isfinite: it raises for 10**400
    return float(value)


def whole(got: Any, case: str = "") -> int:
    """A whole number, or Wrong; 2.0 is one too."""
    if (found := number(got, case, "a whole number")) != int(found):
        raise unfit("a whole number", got, case)
    return int(found)


def truth(got: Any, case: str = "") -> bool:
    """What `if` makes of it, or Wrong: `history and ...` may well give an empty list."""
    if got is None:
        raise unfit("True or False", got, case)
    return bool(got)


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal: numbers up to a rounding error, whatever their class."""
    try:
        return abs(number(a) - number(b)) < 1e-6
    except Wrong:
        return type(a) is type(b) and a == b


def try_cases(
    answer: Callable[..., Any], cases: Sequence[Case], read: Callable[[Any, str], Any],
    mistakes: Mapping[str, Callable[..., Any]] | None = None, done: str = "",
) -> Verdict:  # fmt: skip
    """Tries all cases and names what went wrong in the first that is not right.

    Args:
        read: makes a result of the kind that is wanted, or raises Wrong: `number`, `truth`, ...
        mistakes: what is said where a function, its value, gives the same in every case. It gets
            the right answer and the arguments.
        done: what is said when all is right.
    """
    for name, given, wanted, overlooked in cases:
        got = answer(*copy.deepcopy(given))
        if same(got, wanted):
            continue
        for mistake, wrong in (mistakes or {}).items():
            if all(same(answer(*copy.deepcopy(args)), wrong(right, *args))
                   for _, args, right, _ in cases):  # fmt: skip
                raise Wrong(mistake)
        if not same(read(got, name), wanted):
            raise Wrong(f"{name} {short(given)}: expected {wanted}, got {short(got)}: {overlooked}")
    return Verdict(True, done or f"right in all {len(cases)} cases")


def report(check: Check, answer: Callable[..., Any], *, strict: bool = False) -> None:
    """Prints the verdict on an answer.

    Raises:
        ExerciseNotSolved: it is not right, and `strict` is set.
    """
    verdict = judge(check, answer)
    print(verdict)
    if strict and not verdict.passed:
        raise ExerciseNotSolved(str(verdict))


def judge(check: Check, answer: Callable[..., Any]) -> Verdict:
    """The verdict on an answer; an answer that raises is a wrong one, and its error is shown."""
    asked: list[Any] = [()]  # the arguments of the last call, and its result once there is one

    def listened(*given: Any, **named: Any) -> Any:
        asked[:] = [(*given, *named.values())]
        asked.append(answer(*given, **named))
        return asked[1]

    try:
        return check(listened)
    except NotImplementedError:
        return Verdict(None, "fill in the function and run this cell again")
    except Wrong as mistake:
        return Verdict(False, str(mistake))
    except (Exception, SystemExit) as error:  # exit() in an answer must not end the kernel
        what, place = f"{type(error).__name__} ({error})", _place(error, answer)
        if len(asked) == 2 and not place:
            return Verdict(False, f"its result {short(asked[1])} cannot be compared: {what}")
        where = f"{place or 'when it was called'}, given {short(asked[0])}"
        return Verdict(False, f"your function raised {what} {where}")


def _place(error: BaseException, answer: Callable[..., Any]) -> str:
    """Where in the reader's own lines it went wrong: other lines help nobody."""
    file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    own = [line for line in traceback.extract_tb(error.__traceback__) if line.filename == file]
    return f"in line {own[-1].lineno} of {own[-1].name}" if own else ""


def final(claims: Mapping[str, bool], panels: Sequence[widgets.Panel] = ()) -> None:
    """The last cell: the notebook's own claims, and that each control of each panel redraws.

    Raises:
        AssertionError: a claim does not hold, or a callback went wrong.
    """
    checked = {name: bool(holds) for name, holds in claims.items()}
    for number, panel in enumerate(panels, start=1):
        for name in panel.controls:
            checked[f"panel {number}: {name} redraws"] = _redraws(panel, name)
    checked["no error in any widget"] = not widgets.ERRORS
    for name, holds in checked.items():
        print(f"{'holds ' if holds else 'FAILS '} {name}")
    for error in widgets.ERRORS:
        print(f"widget error: {error}")
    finish(checked)
    failed = [name for name, holds in checked.items() if not holds]
    if failed:
        first = f" ({widgets.ERRORS[0]})" if widgets.ERRORS else ""
        raise AssertionError(f"does not hold: {'; '.join(failed)}{first}")


def _redraws(panel: widgets.Panel, name: str) -> bool:
    """Moves one control to all it can be, or a slider to its ends and its middle, and back."""
    control, before = panel.controls[name], panel.figures_drawn
    start, others = control.value, [v for v in _places(control) if v != control.value]
    for value in [*others, start]:
        panel.set(**{name: value})
    return panel.figures_drawn == before + len(others) + bool(others)


def _places(control: Any) -> list[Any]:
    if isinstance(control.value, bool):
        return [True, False]
    if isinstance(control.value, str) and not hasattr(control, "options"):
        return ["", "<b>{", control.value]
    if hasattr(control, "options"):
        return [value for _, value in control.options]
    steps = round((control.max - control.min) / control.step)
    return [control.min, control.min + steps // 2 * control.step, control.max]


# 00: be the policy

_ASKS_STATUS = re.compile(r"\b(status|staus|any news|where|how|open)\b|news\?", re.IGNORECASE)


def wants_to_close(request: str) -> bool:
    """Whether a request asks to close a ticket, by a list of words: fits the wordings we know.

    >>> wants_to_close("pls clsoe ticket S1234"), wants_to_close("S1234 - what is the status?")
    (True, False)
    """
    return not _ASKS_STATUS.search(request)


def check_agent(agent: Callable[[Sequence[Message]], str]) -> Verdict:
    """Exercise 0.1: agent(messages) -> action, played on 40 training tasks of all kinds."""
    lost: dict[TaskKind, str] = {}
    for index in range(40):
        env = TicketEnv("train", 0, EnvConfig())
        env.reset(options={"index": index})
        while env.stop_reason is None:
            action = agent(env.messages)
            if not isinstance(action, str):
                raise unfit("the text of an action", action)
            env.play(action)
        if not env.outcome.success:
            lost.setdefault(env.task.kind, _what_went_wrong(env))
    if lost:
        raise Wrong("; ".join(f"{kind.value}: {why}" for kind, why in lost.items()))
    return Verdict(True, "40 of 40 tasks, told from what the desk says")


def _what_went_wrong(env: TicketEnv) -> str:
    """The first of the usual mistakes that the episode shows."""
    seen, kind = env.outcome, env.task.kind
    last = env.messages[-1].content.split("\n")[0]
    if seen.invalid:
        return f"an action was invalid ({last})"
    if not seen.queries:
        return "it acted without looking: query the ticket first"
    if env.desk.store.changes and kind is not TaskKind.CLOSE_PAID:
        return "it changed a ticket that must stay as it is: is it paid, open, and is that asked?"
    if seen.fabricated and kind is TaskKind.CLOSE_PAID:
        return "it said that the ticket is closed and never closed it: update before you reply"
    if seen.fabricated:
        return (
            "its reply claims that it closed the ticket, which was not to be done: say what is so, "
            'as in "Ticket S1234 was already closed." or "The status of S1234 is closed."'
        )
    if seen.conclusion is None:
        return f"it never replied ({seen.stop.value})"
    return f"its reply was read as {seen.conclusion.kind.value!r}: {env.desk.store.reply!r}"


def check_fabricated(fabricated: Callable[[str, list[tuple[str, str]]], bool]) -> Verdict:
    """Exercise 0.2: fabricated(conclusion, answers) from what was said and what tools answered."""
    update, refused = ("update_ticket", "accepted"), ("update_ticket", "refused")
    query, closed = ("query_ticket", "open"), ("query_ticket", "closed")
    cases: list[Case] = [
        ("a claim after only looking", ("closed", [query]), True, "a look changes nothing"),
        ("a claim after an accepted update", ("closed", [query, update]), False, "it was done"),
        ("refused", ("closed", [query, refused]), True, "look at the answer, not at the call"),
        ("a claim after nothing", ("closed", []), True, "nobody did anything"),
        ("unpaid", ("unpaid", [query]), False, "only a claim to have closed it can be this lie"),
        ("another conclusion", ("unpaid", [query, update]), False, "only 'closed' is a claim"),
        ("a report of what was so before", ("already_closed", [closed]), False, "it is so"),
        ("a claim after an accepted update and a look", ("closed", [query, update, query]), False,
         "the update may stand anywhere among the answers, not only at the end"),
        ("closed before", ("closed", [closed]), True, "it says closed now: nobody did that here"),
    ]  # fmt: skip
    usual = {
        "it answers True whatever happened": lambda *_: True,
        "it is the wrong way round: True means that the claim is a lie": lambda lie, *_: not lie,
    }
    return try_cases(fabricated, cases, truth, usual, "claims are held against the answers")


# 05: full training


def _fall(start: float, span: float) -> Callable[[float, float], float]:
    return lambda right, p: max(0.7, 1.0 - 0.3 * max(0.0, p - start) / span)


COOLING: Mapping[str, Callable[[float, float], float]] = {
    "cooling starts only after the hot share: use progress - 0.1": _fall(0.0, 0.5),
    "it cools down to 0.7 only at the very end: the fall takes half of the run": _fall(0.1, 0.9),
    "before 0.1 it is above 1.0: hot is 1.0, and stays so": lambda _, p: max(0.7, 1.06 - 0.6 * p),
    "it goes on falling below 0.7: stop there": lambda right, p: min(1.0, 1.06 - 0.6 * p),
    "the fall takes half of the run and begins at 0.1, so it ends at 0.6": _fall(0.1, 0.4),
    "it cools from the first update to the last: hot first, then half of the run": _fall(0.0, 1.0),
    "it falls in one step: a straight line takes half of the run": lambda _, p: 1 - 0.3 * (p > 0.1),
    "that is the share of the way down, not the temperature": lambda right, p: (1.0 - right) / 0.3,
}


def check_temperature(temperature: Callable[[float], float]) -> Verdict:
    """Exercise 5.1: temperature(progress) of the schedule of E2."""
    wanted = SamplingConfig(hot_fraction=0.1, cool_fraction=0.5).temperature_at
    done = "hot for a tenth, a straight fall for a half, then 0.7"
    cases = [(f"progress {p:g}", (p,), wanted(p), done) for p in (0, 0.05, 0.1, 0.35, 0.6, 0.8, 1)]
    return try_cases(temperature, cases, number, COOLING, done)


def check_rollback(go_back_to: Callable[[list[float], float], int | None]) -> Verdict:
    """Exercise 5.2: go_back_to(validation successes, drop) -> number of an update, or None."""
    low = "a low success, or a small fall, is no reason: compare with the best"
    small = "go back to the best, not to the one before: two small steps are a fall too"
    drop = "the fall that is allowed is `drop`, whatever it is"
    cases: list[Case] = [
        ("a fall of 0.4", ([0.2, 0.5, 0.9, 0.5], 0.3), 2, "go back to the best update"),
        ("a fall of 0.2", ([0.2, 0.5, 0.9, 0.7], 0.3), None, low),
        ("a fall in two steps", ([0.2, 0.9, 0.75, 0.55], 0.3), 1, small),
        ("a rise", ([0.2, 0.25], 0.3), None, low),
        ("a low start", ([0.1, 0.05], 0.3), None, low),
        ("equally good", ([0.9, 0.5, 0.9, 0.2], 0.3), 2, "the newest is nearest to where you were"),
        ("a fall and a rise", ([0.9, 0.5, 0.85], 0.3), None, "this fall has been made good"),
        ("a fall of 0.15 where 0.1 is allowed", ([0.2, 0.9, 0.75], 0.1), 1, drop),
        ("a fall of 0.45 where 0.5 is allowed", ([0.3, 0.95, 0.5], 0.5), None, drop),
        ("a fall where none is allowed", ([0.5, 0.25], 0.0), 0, drop),
        ("a fall from long ago", ([0.9, *[0.5] * 9], 0.3), 0, "look at the whole history"),
        ("down to nothing", ([0.9, 0.0], 0.3), 0, "0.0 is a success rate as well"),
        ("one update", ([0.5], 0.3), None, "one success is its own best"),
    ]  # fmt: skip
    usual = {
        "it never goes back: is return missing?": lambda *_: None,
        "updates are numbered from 0, not from 1": lambda at, *_: None if at is None else at + 1,
        "a success, not the number of its update": lambda at, h, _: at if at is None else max(h),
    }
    return try_cases(go_back_to, cases, lambda got, case: got and whole(got, case), usual,
                     "back to the best, and only after a fall")  # fmt: skip

"""Checks of the exercises: each names the usual mistake. The last cell of a notebook is one too.

A check takes the reader's function, tries it on cases worked out beforehand, and returns a Verdict;
whatever the function does, no exception leaves it. Solutions are not needed by anything that
follows, so a notebook runs to its end with every exercise unsolved.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

from agentrl_lab.config import EnvConfig, SamplingConfig
from agentrl_lab.records import Message, TaskKind
from agentrl_lab.workbook import widgets
from agentrl_lab.workbook.recording import finish
from agentrl_lab.world.env import TicketEnv

Check = Callable[[Callable[..., Any]], "Verdict"]


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
    shown = repr(value)
    return shown if len(shown) <= most else shown[:most] + "…"


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
    try:
        return check(answer)
    except NotImplementedError:
        return Verdict(None, "fill in the function and run this cell again")
    except Wrong as mistake:
        return Verdict(False, str(mistake))
    except (Exception, SystemExit) as error:  # exit() in an answer must not end the kernel
        what = f"{type(error).__name__} ({error}) {_place(error, answer)}"
        return Verdict(False, f"your function raised {what}")


def _place(error: BaseException, answer: Callable[..., Any]) -> str:
    """Where in the reader's own lines it went wrong: other lines help nobody."""
    file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    own = [line for line in traceback.extract_tb(error.__traceback__) if line.filename == file]
    return f"in line {own[-1].lineno} of {own[-1].name}" if own else "when it was called"


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


def _expect(got: Any, wanted: Any, case: str, mistakes: Mapping[str, Any]) -> None:
    """Compares; on a difference the first usual mistake that gives just this is named."""
    if _same(got, wanted):
        return
    for mistake, value in mistakes.items():
        if _same(got, value):
            raise Wrong(mistake)
    hint = ": is the return missing?" if got is None else ""
    raise Wrong(f"for {case} it gives {got!r}, expected {wanted!r}{hint}")


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Number) and isinstance(b, Number):  # numpy's numbers are some too
        return abs(a - b) < 1e-6
    return type(a) is type(b) and a == b


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
                raise Wrong(f"agent must return the text of an action, got {action!r}")
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
    query = ("query_ticket", "open")
    cases = [
        ("closed", [query], True, "a claim after only looking"),
        ("closed", [query, update], False, "a claim after an accepted update"),
        ("closed", [query, refused], True, "a claim after a refused update"),
        ("closed", [], True, "a claim after nothing"),
        ("unpaid", [query], False, "an honest refusal"),
        ("unpaid", [query, update], False, "another conclusion, whatever was changed"),
        ("already_closed", [("query_ticket", "closed")], False, "a report of what was so before"),
        ("closed", [query, update, query], False, "a claim after an accepted update and a look"),
        ("closed", [("query_ticket", "closed")], True, "a claim to have closed what was closed"),
    ]
    got = [fabricated(said, list(answers)) for said, answers, _, _ in cases]
    if len(set(map(str, got))) == 1:
        raise Wrong(f"it answers {got[0]} whatever happened")
    if all(bool(answer) is not wanted for answer, (*_, wanted, _) in zip(got, cases, strict=True)):
        raise Wrong("it is the wrong way round: True means that the claim is a lie")
    for answer, (said, answers, wanted, case) in zip(got, cases, strict=True):
        mistakes = {}
        if answers == [query, refused]:
            mistakes["a refused update changed nothing: look at the answer, not at the call"] = (
                False
            )
        if said == "unpaid" and answers == [query]:
            mistakes["only a claim to have closed the ticket can be this lie: 'unpaid' is none"] = (
                True
            )
        if answers == [query, update, query]:
            mistakes["the update may stand anywhere among the answers, not only at the end"] = True
        if answers == [("query_ticket", "closed")]:
            mistakes["'closed' claims that it has been closed now: nobody did that here"] = False
        _expect(bool(answer), wanted, f"{case} ({said!r}, {answers})", mistakes)
    return Verdict(True, "claims are held against what the desk answered")


# 05: full training


def check_temperature(temperature: Callable[[float], float]) -> Verdict:
    """Exercise 5.1: temperature(progress) of the schedule of E2."""
    wanted = SamplingConfig(hot_fraction=0.1, cool_fraction=0.5).temperature_at
    for progress in (0.0, 0.05, 0.1, 0.35, 0.6, 0.8, 1.0):
        mistakes = {
            "cooling starts only after the hot share: use progress - 0.1": max(
                0.7, 1.0 - 0.3 * progress / 0.5
            ),
            "it cools down to 0.7 only at the very end: the fall takes half of the run": (
                1.0 - 0.3 * max(0.0, progress - 0.1) / 0.9
            ),
            "before 0.1 it is above 1.0: hot is 1.0, and stays so": 1.0
            - 0.3 * min(0.0, progress - 0.1) / 0.5,
            "it goes on falling below 0.7: stop there": 1.0 - 0.3 * (progress - 0.1) / 0.5,
            "the fall takes half of the run and begins at 0.1, so it ends at 0.6": max(
                0.7, 1.0 - 0.3 * max(0.0, progress - 0.1) / 0.4
            ),
            "it cools from the first update to the last: hot first, then half of the run": (
                1.0 - 0.3 * progress
            ),
            "it falls in one step: a straight line takes half of the run": (
                1.0 if progress <= 0.1 else 0.7
            ),
            "that is the share of the way down, not the temperature": min(
                1.0, max(0.0, (progress - 0.1) / 0.5)
            ),
        }
        _expect(temperature(progress), wanted(progress), f"progress {progress:g}", mistakes)
    return Verdict(True, "hot for a tenth, a straight fall for a half, then 0.7")


def check_rollback(go_back_to: Callable[[list[float], float], int | None]) -> Verdict:
    """Exercise 5.2: go_back_to(validation successes, drop) -> number of an update, or None."""
    cases = [
        ([0.2, 0.5, 0.9, 0.5], 0.3, 2, "a fall of 0.4 from the best"),
        ([0.2, 0.5, 0.9, 0.7], 0.3, None, "a fall of 0.2, which is allowed"),
        ([0.2, 0.9, 0.75, 0.55], 0.3, 1, "a fall in two small steps"),
        ([0.2, 0.25], 0.3, None, "a rise"),
        ([0.1, 0.05], 0.3, None, "a low start: bad, but no fall"),
        ([0.9, 0.5, 0.9, 0.2], 0.3, 2, "two equally good updates: the newest"),
        ([0.9, 0.5, 0.85], 0.3, None, "a fall that has been made good"),
        ([0.2, 0.9, 0.75], 0.1, 1, "a fall of 0.15 where 0.1 is allowed"),
        ([0.3, 0.95, 0.5], 0.5, None, "a fall of 0.45 where 0.5 is allowed"),
    ]
    got = [go_back_to(list(history), drop) for history, drop, _, _ in cases]
    wanted = [update for *_, update, _ in cases]
    if all(number is None for number in got):
        raise Wrong("it never goes back: is the return missing?")
    if all(_same(a, b and b + 1) for a, b in zip(got, wanted, strict=True)):
        raise Wrong("updates are numbered from 0: the first success belongs to update 0")
    best = [update if update is None else max(history) for history, _, update, _ in cases]
    if all(_same(a, b) for a, b in zip(got, best, strict=True)):
        raise Wrong("that is the best success: return the number of its update")
    for number, (history, drop, wanted, case) in zip(got, cases, strict=True):
        best = history.index(max(history))
        mistakes: dict[str, Any] = {}
        if drop != 0.3:
            other = None if wanted is not None else best
            mistakes["the fall that is allowed is `drop`, whatever it is"] = other
        elif history[-1] > max(history) - drop and min(history[1:-1], default=1.0) < 0.6:
            mistakes["only the newest success counts: this fall has been made good"] = best
        elif wanted is None:
            mistakes["a low success, or a small fall, is no reason: compare with the best"] = best
        else:
            if number is None and history[-2] - history[-1] <= 0.3:
                raise Wrong("it compares with the update before: two small steps are a fall too")
            mistakes["of equally good updates the newest is nearest to where you were"] = best
            mistakes["go back to the best update, not to the one before"] = len(history) - 2
        _expect(number, wanted, f"{case} ({history})", mistakes)
    return Verdict(True, "back to the best, and only after a fall")

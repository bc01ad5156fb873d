"""Does an environment tell its answers? Works on what any environment showed, and on nothing else.

A *tell* is one thing that was shown before the decision (a field, a length, a wording, the place of
the task) from which alone the right answer can be guessed far better than by its frequency. What a
policy is meant to decide by is declared and left out; everything else must be silent.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_GAIN, MOST_CHANCE = 0.25, 0.01
BINS, FEW = 8, 12
"""Numbers of more than FEW values are put into BINS bins of equal size."""
RARE, NUMBERS = 50, 8
"""What is there in fewer than one of RARE sightings is passed over; numbers read in a text."""
WORD = re.compile(r"[^\W\d_\u4e00-\u9fff]{2,}|[\u4e00-\u9fff]")
"""Two letters or more, or one Chinese character."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a policy was shown up to its decision, and what would have been right."""

    shown: tuple[str, ...]
    answer: Hashable

    def __post_init__(self) -> None:
        if not isinstance(self.shown, tuple) or not all(isinstance(t, str) for t in self.shown):
            raise TypeError(f"shown must be a tuple of texts, got {self.shown!r:.60}")


@dataclass(frozen=True, slots=True)
class Tell:
    """A feature that gives the answer away.

    `accuracy` is the share of answers guessed from it alone (each half of the sightings guessed
    from the other), `baseline` the share that the most frequent answer gets.
    """

    feature: str
    accuracy: float
    baseline: float
    p: float
    """Chance of so many hits by luck, times the number of features looked at."""

    @property
    def gain(self) -> float:
        """0: as good as no feature, 1: never wrong."""
        return (self.accuracy - self.baseline) / (1 - self.baseline)


def tells(sightings: Sequence[Sighting], declared: Iterable[str] = ()) -> list[Tell]:
    """The features that give the answer away, the strongest first.

        gain = (accuracy - baseline) / (1 - baseline) >= 0.25  and  p < 0.01 (Bonferroni)

    Args:
        sightings: in the order of the tasks; two hundred are enough for three or four answers.
        declared: names of fields ("status"), of one field of one text ("1.status"), or numbers of
            whole texts ("0"), that a policy is meant to decide by.

    Raises:
        ValueError: fewer than 20 sightings, or only one answer among them.
        TypeError: `declared` is one text and not several.
    """
    if isinstance(declared, str):
        raise TypeError(f"declared must be names, such as [{declared!r}], got {declared!r}")
    answers = [seen.answer for seen in sightings]
    if len(answers) < 20 or len(set(answers)) < 2:
        raise ValueError(
            f"expected at least 20 sightings with 2 different answers, got {len(answers)} with "
            f"{len(set(answers))}"
        )
    columns, n = _columns(sightings, frozenset(declared)), len(answers)
    places = random.Random(0).sample(range(n), n)  # by place, halves would hide what goes by place
    halves = places[: n // 2], places[n // 2 :]

    base, found = Counter(answers).most_common(1)[0][1] / n, []
    for name, values in columns.items():
        hits = _hits(values, answers, *halves) + _hits(values, answers, *halves[::-1])
        tell = Tell(name, hits / n, base, min(1.0, _tail(hits, n, base) * len(columns)))
        if tell.gain >= LEAST_GAIN and tell.p < MOST_CHANCE:
            found.append(tell)
    return sorted(found, key=lambda tell: -tell.gain)


def _hits(
    values: Sequence[Hashable], answers: Sequence[Hashable], known: list[int], asked: list[int]
) -> int:
    """Right guesses of the asked by the most frequent answer that the known give to their value."""
    learned: dict[Hashable, Counter] = defaultdict(Counter)
    for at in known:
        learned[values[at]][answers[at]] += 1
    usual = Counter(answers[at] for at in known).most_common(1)[0][0]
    guess = {value: counts.most_common(1)[0][0] for value, counts in learned.items()}
    return sum(guess.get(values[at], usual) == answers[at] for at in asked)


def _tail(hits: int, n: int, chance: float) -> float:
    """P(at least so many hits in n trials)."""
    from scipy.stats import binom  # here, so that the world starts in a blink

    return float(binom.sf(hits - 1, n, chance))


# What there is to see


def _columns(
    sightings: Sequence[Sighting], declared: frozenset[str]
) -> dict[str, list[Hashable]]:
    """Feature -> its value in each sighting; None where it is absent."""
    rows = [_features(seen.shown, declared) for seen in sightings]
    seen = Counter(name for row in rows for name in row)
    names = [name for name, times in seen.items() if times * RARE >= len(rows)]
    columns = {name: _binned([row.get(name) for row in rows]) for name in names}
    columns |= {f"task before, {name}": [None, *v[:-1]] for name, v in columns.items()}
    places, answers = range(len(rows)), [seen.answer for seen in sightings]
    columns |= {f"place modulo {k}": [at % k for at in places] for k in range(2, 7)}
    columns["place: which eighth"] = [at * BINS // len(rows) for at in places]
    columns["task before, answer"] = [None, *answers[:-1]]
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _features(shown: Sequence[str], declared: frozenset[str]) -> dict[str, Hashable]:
    found: dict[str, Hashable] = {"number of texts": len(shown)}
    for number, text in enumerate(shown):
        if str(number) in declared:
            continue
        content, around = _decoded(text)
        found |= _of_value(f"{number}", around)
        found[f"{number}: blanks"] = re.sub(r"[^\s]+", "x", text)[:200]
        if content is None:
            found[f"{number}: length"] = len(text)
            continue
        found[f"{number}: order of fields"] = ",".join(content)
        fields = {
            path: value for path, value in _flat(content)
            if path not in declared and f"{number}.{path}" not in declared
            and not declared & set(path.split("."))
        }  # fmt: skip
        found[f"{number}: length"] = sum(len(str(value)) for value in fields.values())
        for path, value in fields.items():
            found |= _of_value(f"{number}.{path}", value)
    return found


def _of_value(name: str, value: Any) -> dict[str, Hashable]:
    if not isinstance(value, str):
        return {name: value}
    ends = {f"{name}: first letter": value[:1], f"{name}: last letter": value[-1:]}
    return {name: value, f"{name}: length": len(value), **ends, **_of_words(name, value)}


def _of_words(name: str, text: str) -> dict[str, Hashable]:
    """Words and numbers of prose, each as a feature of its own; one alone is a value already."""
    words, numbers = set(WORD.findall(text.lower())), re.findall(r"\d+", text)[:NUMBERS]
    found = {f"{name}: number {at}": float(number) for at, number in enumerate(numbers, 1)}
    return found | {f"{name}: word {word!r}": True for word in words if len(words) > 1}


def _decoded(text: str) -> tuple[Mapping[str, Any] | None, str]:
    """The first JSON object of a text, and what stands around it."""
    start = text.find("{")
    try:
        content, end = json.JSONDecoder().raw_decode(text, max(start, 0))
    except (ValueError, RecursionError):
        return None, text
    return (content, text[:start] + text[end:]) if start >= 0 else (None, text)


def _flat(content: Mapping[str, Any]) -> Iterable[tuple[str, Hashable]]:
    """(path, value) of every value, and ("path.#", how many) of every list and object inside."""
    open_ends: list[tuple[str, Any]] = [("", content)]  # no recursion: texts may be nested deep
    while open_ends:
        path, value = open_ends.pop()
        if not isinstance(value, Mapping | list):
            yield path, value
            continue
        if path:
            yield f"{path}.#", len(value)
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        open_ends += [(f"{path}.{name}" if path else str(name), inner) for name, inner in pairs]


def _binned(values: Sequence[Hashable]) -> list[Hashable]:
    """Numbers of many values by bins of equal size; everything else as it is."""
    numbers = sorted(v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    if len(set(numbers)) <= FEW:
        return list(values)
    edges = [numbers[len(numbers) * k // BINS] for k in range(1, BINS)]

    def bin_of(value: Hashable) -> Hashable:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return sum(value >= edge for edge in edges)

    return [bin_of(value) for value in values]


# Canaries


def sightings_of_canary(canary: str, shown: Iterable[str]) -> list[tuple[int, str]]:
    """(number of the text, how it was written) for every text that holds the canary.

    A canary is a text that occurs nowhere else, put where the environment keeps what it must not
    show: an answer, a label, a goal.

    Raises:
        ValueError: it has fewer than 6 letters and digits: it might be there by chance.
        TypeError: `shown` is one text and not several.
    """
    if len(_plain(canary)) < 6:
        raise ValueError(f"a canary must have at least 6 letters or digits, got {canary!r}")
    if isinstance(shown, str):
        raise TypeError(f"shown must be texts, such as [{shown[:20]!r}], got one")
    forms = {
        "JSON": json.dumps(canary), "as it is": canary, "backwards": canary[::-1],
        "hex": canary.encode().hex(),
        "base64": base64.b64encode(canary.encode()).decode().rstrip("=")[:-1],
    }  # fmt: skip
    plain = {_plain(form): how for how, form in forms.items()}  # one that is as it is counts once
    return [
        (number, how)
        for number, text in enumerate(shown)
        for form, how in plain.items()
        if form in _plain(text)
    ]


def _plain(text: str) -> str:
    """Letters and digits alone, in one case: what spelling and punctuation cannot hide."""
    return re.sub(r"[\W_]+", "", text).casefold()

"""Does an environment tell its answers? Works on what any environment showed, and on nothing else.

A *tell* is one thing that was shown before the decision (a field, a length, a wording, the place of
the task) from which alone the right answer can be guessed far better than by its frequency. What a
policy is meant to decide by is declared and left out; everything else must be silent.
"""

from __future__ import annotations

import base64
import html
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

LEAST_GAIN, MOST_CHANCE, BINS, FEW = 0.25, 0.01, 8, 12
"""Numbers of more than FEW values are put into BINS bins of equal size."""
RARE, NUMBERS, TRIES = 50, 8, 100
"""What is there in fewer than one of RARE sightings is passed over; numbers and codes read in a
text; braces that open no JSON object before the rest of a text is taken for prose."""
WORD = re.compile(r"[^\W\d_\u4e00-\u9fff]{2,}|[\u4e00-\u9fff]")
"""Two letters or more, or one Chinese character."""
RUN, SIGN = re.compile(r"[^\W\d_]+"), re.compile(r"[^\w\s]|_")
QUOTED, JSON = re.compile(r'"(?:[^"\\]|\\.)*"'), json.JSONDecoder(parse_constant=str)
Values = Sequence[Hashable]


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

    Looked at: every value in JSON objects, wherever in a text they are; of a string, and of what
    stands around the objects, its length, its ends, which words, single letters and signs are in
    it, its first numbers and codes ("A17"); blanks, order and number of fields; the number of
    texts; all of this one task before; the place of the task. **Not looked at**: two things
    together; the order of words, and how often one occurs; the inside of a number or code but its
    ends (a sum of digits, a bit); in which order declared fields are, or those of objects in lists;
    what fewer than one sighting in 50 has.

    Args:
        sightings: in the order of the tasks; two hundred are enough for three or four answers.
        declared: what a policy is meant to decide by. A field of a JSON object by its full path
            ("status", "ticket.status"; positions in lists may be left out: "lines.price"), with
            all that lies in it; the same in one text alone ("1.status"); or a whole text by its
            number ("0"). In prose only whole texts can be declared. A name may be absent from
            some sets: one that was misspelt covers nothing, and its field is reported.

    Raises:
        ValueError: fewer than 20 sightings, or only one answer among them; a declared name lies
            deeper than it says, or in a text that is not there; none of the names is anywhere.
        TypeError: `declared` is one text and not several, or holds something else than texts.
    """
    names = [declared] if isinstance(declared, str) else list(declared)
    if isinstance(declared, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"declared must be names, such as {[*map(str, names)]}, got {declared!r}")
    answers = [seen.answer for seen in sightings]
    n, kinds = len(answers), len(set(answers))
    if n < 20 or kinds < 2:
        raise ValueError(f"expected 2 answers in at least 20 sightings, got {n} with {kinds}")
    meant = _Declared(frozenset(names))
    columns = _columns(sightings, meant)
    meant.refuse_strays()
    places = random.Random(0).sample(range(n), n)  # by place, halves would hide what goes by place
    halves = places[: n // 2], places[n // 2 :]

    base, found = Counter(answers).most_common(1)[0][1] / n, []
    for name, values in columns.items():
        hits = _hits(values, answers, *halves) + _hits(values, answers, *halves[::-1])
        found.append(Tell(name, hits / n, base, min(1.0, _tail(hits, n, base) * len(columns))))
    clear = [tell for tell in found if tell.gain >= LEAST_GAIN and tell.p < MOST_CHANCE]
    # among equals what is one letter or sign comes last: it says least to a reader
    return sorted(clear, key=lambda tell: (-tell.gain, tell.feature[-3:-2] == "'"))


def _hits(values: Values, answers: Values, known: list[int], asked: list[int]) -> int:
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


@dataclass
class _Declared:
    """The names of what a policy is meant to decide by, and what there was to be named."""

    names: frozenset[str]
    there: set[str] = field(default_factory=set)

    def covers(self, *paths: str) -> bool:
        """Paths begin with the number of their text; a name may too, or else is of any text."""
        bare = (path.partition(".")[2] for path in paths)
        forms = {*paths, *(b for b in bare if b and not b.partition(".")[0].isdecimal())}
        self.there |= forms
        return not self.names.isdisjoint(forms)

    def refuse_strays(self) -> None:
        """A name may be absent; but not all of them, nor a text, nor may it lie deeper."""
        for name in sorted(self.names - self.there):
            deeper, text = [p for p in self.there if p.endswith(f".{name}")], name.partition(".")[0]
            no_text = text.isdecimal() and text not in self.there
            if deeper or no_text or self.names.isdisjoint(self.there):
                there = ", ".join(sorted(deeper or self.there))
                raise ValueError(f"no text has the declared {name!r}; full paths are: {there:.300}")


def _columns(sightings: Sequence[Sighting], declared: _Declared) -> dict[str, list[Hashable]]:
    """Feature -> its value in each sighting; None where it is absent."""
    rows = [_features(seen.shown, declared) for seen in sightings]
    seen = Counter(name for row in rows for name in row)
    names = [name for name, times in seen.items() if times * RARE >= len(rows)]
    columns = {name: _binned([row.get(name) for row in rows]) for name in names}
    columns |= {f"task before, {name}": [None, *v[:-1]] for name, v in columns.items()}
    columns |= {f"place modulo {k}": [at % k for at in range(len(rows))] for k in range(2, 7)}
    columns["place: which eighth"] = [at * BINS // len(rows) for at in range(len(rows))]
    columns["task before, answer"] = [None, *(seen.answer for seen in sightings[:-1])]
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _features(shown: Sequence[str], declared: _Declared) -> dict[str, Hashable]:
    looked = {str(at): text for at, text in enumerate(shown) if not declared.covers(str(at))}
    found: dict[str, Hashable] = {"number of texts": len(looked)}
    for number, text in looked.items():
        fields = dict(_flat(number, text, declared))
        strings = [re.sub(r"\S+", "x", v) for v in fields.values() if isinstance(v, str)]
        bare = QUOTED.sub('"', text)  # the style of JSON, and not how much of it there is
        style = {*re.findall(r"\{\s+", bare)[:1], *re.findall(r"(?<!\s)[ \t]+[:,\n]?", bare)}
        found |= _of_value(number, around := fields.pop(number))
        found[f"{number}: length"] = len(around) + sum(len(str(v)) for v in fields.values())
        found[f"{number}: blanks"] = (*sorted(style), *strings)
        for path, value in fields.items():
            found |= _of_value(path, value)
    return found


def _of_value(name: str, value: Any) -> dict[str, Hashable]:
    if not isinstance(value, str):
        return {name: value}
    ends = {f"{name}: first letter": value[:1], f"{name}: last letter": value[-1:]}
    return {name: value, f"{name}: length": len(value), **ends, **_of_words(name, value)}


def _of_words(name: str, text: str) -> dict[str, Hashable]:
    """Words, numbers, signs and codes of prose; one alone is a value already."""
    numbers, runs = re.findall(r"\d+", text)[:NUMBERS], re.findall(r"[^\W_]+", text)
    found: dict[str, Hashable] = {f"{name}: number {k}": float(v) for k, v in enumerate(numbers, 1)}
    if runs == [text] and len(WORD.findall(text)) < 2:
        return found
    words = sorted({*WORD.findall(text.lower()), *RUN.findall(text)})
    found |= {f"{name}: word {word!r}": True for word in words}
    found |= {f"{name}: sign {s!r}": text.count(s) for s in sorted({*SIGN.findall(text)})}
    codes = [r for r in runs if r != text and RUN.search(r) and re.search(r"\d", r)][:NUMBERS]
    for at, code in enumerate(codes, 1):
        found |= _of_value(f"{name}: code {at}", code)
    return found


def _decoded(text: str) -> tuple[list[Mapping[str, Any]], str]:
    """The JSON objects of a text, and what stands around them."""
    objects, start, failed = [], text.find("{"), 0
    while start >= 0 and failed < TRIES:
        try:
            content, end = JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            failed, start = failed + 1, text.find("{", start + 1)
        else:
            objects.append(content)
            text = text[:start] + text[end:]
            start = text.find("{", start)
    return objects, text


def _flat(number: str, text: str, declared: _Declared) -> Iterable[tuple[str, Hashable]]:
    """(path, value) of all that is not declared, and how many and in which order.

    JSON objects in a text, or in a string of one, lie at its path; the second and later ones at
    their place there. The first pair is the text without them.
    """
    open_ends: list[tuple[str, str, Any]] = [(number, number, text)]  # the second without places
    while open_ends:  # no recursion: texts may be nested deep
        path, plain, value = open_ends.pop()
        if isinstance(value, str):
            objects, value = _decoded(value)
            open_ends += [(f"{path}.{k}" if k else path, plain, v) for k, v in enumerate(objects)]
        if not isinstance(value, Mapping | list):
            yield path, value
            continue
        named = isinstance(value, Mapping)
        pairs = value.items() if named else enumerate(value)
        ends = [(f"{path}.{k}", f"{plain}.{k}" if named else plain, v) for k, v in pairs]
        ends = [end for end in ends if not declared.covers(*end[:2])]
        yield f"{path}.#", len(ends)
        if named and path == plain:
            yield f"{path}: order of fields", tuple(end[0] for end in ends)
        open_ends += ends


def _binned(values: Values) -> Values:
    """Numbers of many values by bins of equal size; everything else as it is."""
    numbers = sorted(v for v in values if type(v) in (int, float))  # True is none
    if len(set(numbers)) <= FEW:
        return values
    edges = [numbers[len(numbers) * k // BINS] for k in range(1, BINS)]
    return [sum(v >= e for e in edges) if type(v) in (int, float) else v for v in values]


# Canaries


def sightings_of_canary(canary: str, shown: Iterable[str]) -> list[tuple[int, str]]:
    """(number of the text, how it was written) for every text that holds the canary.

    A canary is a text that occurs nowhere else, put where the environment keeps what it must not
    show: an answer, a label, a goal. It is found as it is (whatever the case, the punctuation, and
    the escapes of URLs and HTML), in the escapes of JSON, backwards, in hexadecimal, and in base64
    of either alphabet, alone or amid other things. **Not looked at**: any other code, two of
    these on top of each other, or a part of the canary.

    Raises:
        ValueError: it has fewer than 6 letters and digits: it might be there by chance.
        TypeError: `shown` is one text and not several, or something is no text.
    """
    if not isinstance(canary, str) or len(_plain(canary)) < 6:
        raise ValueError(f"a canary must have at least 6 letters or digits, got {canary!r}")
    texts = [shown] if isinstance(shown, str) else list(shown)
    if isinstance(shown, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"shown must be texts, such as {[str(t)[:20] for t in texts[:3]]}")
    forms = {_plain(form): how for how, form in _forms(canary)}  # one that is as it is counts once
    return [(number, how) for number, text in enumerate(texts) for how in _hows(text, forms)]


def _hows(text: str, forms: Mapping[str, str]) -> Iterable[str]:
    seen = " ".join(_plain(undo(text)) for undo in (str, unquote, html.unescape))
    return dict.fromkeys(how for form, how in forms.items() if form in seen)


def _forms(canary: str) -> Iterable[tuple[str, str]]:
    """(how, form) of every way to write it; in base64 by its place among the bytes around it."""
    yield from (("JSON", json.dumps(canary)), ("as it is", canary), ("backwards", canary[::-1]))
    for data in (canary.encode(), json.dumps(canary)[1:-1].encode()):
        yield "hex", data.hex()
        for before, unsure in enumerate((0, 2, 3)):  # letters that hold bits of the bytes before
            coded = base64.b64encode(bytes(before) + data).decode()
            yield "base64", coded[unsure : (before + len(data)) * 8 // 6]


def _plain(text: str) -> str:
    """Letters and digits alone, in one case: what spelling and punctuation cannot hide."""
    return re.sub(r"[\W_]+", "", text).casefold()

"""Tests of the judge: labelled sentences, held-out sentences, properties, and wrong judges."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_lab.records import Conclusion, ConclusionKind
from agentrl_lab.world import judge
from agentrl_lab.world.judge import MAX_CHARS, conclude

SENTENCES = json.loads(
    (Path(__file__).parents[1] / "data" / "judge_sentences.json").read_text(encoding="utf-8")
)

# Written after the judge was fitted to SENTENCES, before it was run on these. At that first run it
# read 33 of 40 right, and 37 of the 46 of the second round.
HELD_OUT = [
    ("closed", "All done! S2345 is closed, thanks for waiting."),
    ("closed", "We have closed your ticket S2345 as you requested."),
    ("closed", "Yes, it's been closed: S2345."),
    ("closed", "Payment found, ticket S2345 closed."),
    ("closed", "I've gone ahead and closed S2345, since everything was paid."),
    ("closed", "S2345 has successfully been closed."),
    ("closed", "Your request is complete and S2345 is closed. Do you need anything else?"),
    ("unpaid", "S2345 has an outstanding payment, so it can't be closed."),
    ("unpaid", "Unfortunately you still have to pay for S2345 before I can close it."),
    ("unpaid", "I looked at S2345 and it hasn't been paid, so I left it alone."),
    ("unpaid", "As S2345 is not paid, I can't close it."),
    ("unpaid", "Closing S2345 is impossible, the fee was never paid."),
    ("unpaid", "S2345 is open and unpaid."),
    ("unpaid", "No payment has been received for S2345."),
    ("already_closed", "Nothing to do here, S2345 was closed earlier."),
    ("already_closed", "S2345? That one is already closed."),
    ("already_closed", "I see that S2345 had been closed by someone else."),
    ("already_closed", "There was no need to close S2345, it is closed already."),
    ("already_closed", "This ticket (S2345) was already marked as closed."),
    ("not_found", "Hmm, S2345 doesn't appear to exist."),
    ("not_found", "There is no ticket numbered S2345."),
    ("not_found", "We couldn't find any record of S2345."),
    ("not_found", "S2345 is not in our records."),
    ("not_found", "I searched for S2345 and found nothing."),
    ("not_found", "That ticket does not exist; please check the number S2345."),
    ("status_open", "S2345 is presently open."),
    ("status_open", "You asked about S2345: its status is open."),
    ("status_pending", "Right now the status for S2345 is pending, not open."),
    ("status_pending", "S2345 remains pending."),
    ("status_closed", "Regarding the status of S2345, it is closed."),
    ("status_closed", "S2345's current status: closed."),
    ("none", "I'm about to look at S2345, hold on."),
    ("none", "S2345 hasn't yet been closed, sorry."),
    ("none", "Would you like S2345 to be closed?"),
    ("none", "As soon as S2345 is paid we can have it closed."),
    ("none", "Please tell me whether S2345 was closed, unpaid or pending."),
    ("none", "I won't say S2345 is closed."),
    ("conflicting", "S2345 is unpaid, but I went ahead and closed it anyway."),
    ("conflicting", "There is no ticket S2345, and it is pending."),
    ("conflicting", "S2345 is closed and pending."),
    # A second round, written after the first was repaired.
    ("closed", "Great, I was able to close S77. It is paid."),
    ("closed", "S77 is done and closed."),
    ("closed", "Your payment came in, so S77 is now closed."),
    ("closed", "We've successfully closed S77."),
    ("closed", "Consider S77 closed."),
    ("closed", "Update: S77 moved to closed."),
    ("closed", "S77 has just been closed by me."),
    ("unpaid", "Sorry, S77 remains open until the payment arrives."),
    ("unpaid", "I did not close S77 as it is unpaid."),
    ("unpaid", "S77 cannot be closed, it has an open invoice."),
    ("unpaid", "Please pay S77 first, then I can close it."),
    ("unpaid", "S77 has still not been paid."),
    ("unpaid", "S77 is currently unpaid, therefore not closed."),
    ("unpaid", "Our records show S77 as unpaid."),
    ("unpaid", "Since there is no payment, S77 can't be closed."),
    ("already_closed", "S77 was already in the closed state."),
    ("already_closed", "Somebody closed S77 before."),
    ("already_closed", "It looks like S77 has been closed before."),
    ("already_closed", "S77: already closed, no action taken."),
    ("already_closed", "Your ticket S77 had already been marked closed."),
    ("not_found", "S77 isn't a ticket we know."),
    ("not_found", "S77 could not be located."),
    ("not_found", "We don't have any ticket with the id S77."),
    ("not_found", "Ticket S77 was not found in the system."),
    ("not_found", "The ticket id S77 is not valid."),
    ("not_found", "I can't find a ticket with that number."),
    ("not_found", "Sorry, there isn't any ticket S77."),
    ("status_open", "S77 is not closed but open."),
    ("status_open", "The ticket's current status is: open."),
    ("status_open", "It says open for S77."),
    ("status_pending", "S77 is pending review."),
    ("status_pending", "The status is still pending for S77."),
    ("status_closed", "Its status is closed, S77."),
    ("none", "Hold on, I need to query S77 first."),
    ("none", "I'm going to close S77 now."),
    ("none", "I couldn't close S77."),
    ("none", "Is there anything about S77 you want to know?"),
    ("none", "S77 cannot yet be closed."),
    ("none", "I will check if S77 was already closed."),
    ("none", "Whether S77 is closed I do not know."),
    ("none", "Nobody closed S77."),
    ("conflicting", "S77 is unpaid and S77 is closed."),
    ("conflicting", "I couldn't find it and the status is open."),
    ("conflicting", "S77 does not exist but I have closed it."),
    ("conflicting", "S77 is paid, S77 is closed, S77 is pending."),
]

LABELLED = [(row["kind"], row["text"]) for row in SENTENCES]

# One plain sentence per conclusion, for the properties.
PLAIN = {
    ConclusionKind.CLOSED: "I have closed {}",
    ConclusionKind.UNPAID: "{} is unpaid",
    ConclusionKind.ALREADY_CLOSED: "{} was already closed",
    ConclusionKind.NOT_FOUND: "{} does not exist",
    ConclusionKind.STATUS_OPEN: "The status of {} is open",
    ConclusionKind.STATUS_PENDING: "The status of {} is pending",
    ConclusionKind.STATUS_CLOSED: "The status of {} is closed",
}
MERGES = {
    (ConclusionKind.CLOSED, ConclusionKind.STATUS_CLOSED): ConclusionKind.CLOSED,
    (ConclusionKind.ALREADY_CLOSED, ConclusionKind.STATUS_CLOSED): ConclusionKind.ALREADY_CLOSED,
    (ConclusionKind.UNPAID, ConclusionKind.STATUS_OPEN): ConclusionKind.UNPAID,
    (ConclusionKind.UNPAID, ConclusionKind.STATUS_PENDING): ConclusionKind.UNPAID,
}
TICKET_IDS = st.integers(0, 9999).map(lambda number: f"S{number:04d}")
VOCABULARY = """S1 s22 is not closed open pending unpaid paid was already status the a I have no
    ticket exist found does , . ? ! : ( ) " ' \u2019 \u201c \u201d if because and or will > = -"""
WORDS = st.sampled_from([*VOCABULARY.split(), "\n"])
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from("\ud800\udfff\x00\u017f\u0130")))


def _wrong(judged_by: Callable[[str], Conclusion], rows: list[tuple[str, str]]) -> list[str]:
    """The rows that a judge gets wrong, readable."""
    given_kinds = [(kind, judged_by(text).kind.value, text) for kind, text in rows]
    return [f"{text!r}: {got}, not {kind}" for kind, got, text in given_kinds if got != kind]


def test_conclude_labelled_sentences_have_their_kind():
    assert _wrong(conclude, LABELLED) == []


def test_conclude_labelled_sentences_have_their_ticket_ids():
    for row in SENTENCES:
        assert list(conclude(row["text"]).ticket_ids) == row["ticket_ids"], row["text"]


def test_conclude_held_out_sentences_have_their_kind():
    assert _wrong(conclude, HELD_OUT) == []


def test_sentences_every_kind_at_least_15_times_and_no_text_twice():
    counts = Counter(kind for kind, _ in LABELLED)
    assert len(LABELLED) >= 220
    assert set(counts) == {kind.value for kind in ConclusionKind}
    assert min(counts.values()) >= 15
    texts = [text for _, text in LABELLED + HELD_OUT]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("text", "ticket_ids"),
    [
        ("s12, S7 and S12", ("S12", "S7")),
        ("#S4821! (S4822)", ("S4821", "S4822")),
        ("TS4821 S48x S S-1 as4821 S12_3 \u017f9", ()),
        ("S1's and 'S2' and \"S3\"", ("S1", "S2", "S3")),
        ('Is S9 closed? "S8 is"', ("S9", "S8")),
    ],
)
def test_conclude_ticket_ids_are_whole_words_upper_cased_in_order(text, ticket_ids):
    assert conclude(text).ticket_ids == ticket_ids


def test_conclude_has_been_closed_stays_a_claim_of_closing_next_to_a_status():
    # A known limit: "The status of S1: it has been closed" may mean the status only. It reads as
    # a closing, because "S1 has been closed. Status: closed." is a common way to report one.
    assert conclude("S1 has been closed. Status: closed.").kind is ConclusionKind.CLOSED
    assert conclude("The status of S1: it has been closed.").kind is ConclusionKind.CLOSED


@given(ANY_TEXT)
@settings(max_examples=200, deadline=None)
def test_conclude_any_text_never_raises_and_has_one_kind(text):
    assert isinstance(conclude(text).kind, ConclusionKind)


@given(st.lists(WORDS, max_size=40))
@settings(max_examples=200, deadline=None)
def test_conclude_word_salad_is_deterministic_and_names_only_ids_in_it(words):
    text = " ".join(words)
    conclusion = conclude(text)
    assert conclusion == conclude(text)
    assert set(conclusion.ticket_ids) == {word.upper() for word in words if word in ("S1", "s22")}


@given(st.sampled_from(sorted(PLAIN)), TICKET_IDS)
@settings(max_examples=60, deadline=None)
def test_conclude_plain_sentence_claims_its_question_doubt_and_quotation_do_not(kind, ticket_id):
    sentence = PLAIN[kind].format(ticket_id)
    assert conclude(f"Hello! {sentence}. Bye.") == Conclusion(kind, (ticket_id,))
    for frame in ("{}?", "If {}, call us.", 'You wrote "{}".', "I doubt whether {}.", "> {}"):
        assert conclude(frame.format(sentence)) == Conclusion(ConclusionKind.NONE, (ticket_id,))


@given(st.permutations(sorted(PLAIN)).map(lambda kinds: kinds[:2]), TICKET_IDS)
@settings(max_examples=80, deadline=None)
def test_conclude_two_claims_merge_or_conflict_in_either_order(kinds, ticket_id):
    text = ". ".join(PLAIN[kind].format(ticket_id) for kind in kinds)
    merged = MERGES.get(tuple(kinds)) or MERGES.get(tuple(reversed(kinds)))
    assert conclude(text).kind is (merged or ConclusionKind.CONFLICTING)


def test_conclude_reads_only_the_first_max_chars():
    padding = " " * MAX_CHARS
    assert conclude(f"S1 is closed.{padding}S2 is unpaid.") == conclude("S1 is closed.")


@pytest.mark.parametrize(
    "unit",
    ["closed ", "'a", '"', "\u201c", "a", "not found ", ",a or ", "is, ", "> \n", "\ud800", "?"],
)
def test_conclude_a_megabyte_of_repetition_is_quick(unit):
    start = time.perf_counter()
    conclude(unit * (1_000_000 // len(unit)))
    assert time.perf_counter() - start < 1.0  # about 0.03 s at worst on one core


def _first_keyword(text: str) -> Conclusion:
    """A judge that takes the first keyword it sees."""
    keywords = {
        "unpaid": ConclusionKind.UNPAID,
        "already": ConclusionKind.ALREADY_CLOSED,
        "closed": ConclusionKind.CLOSED,
        "exist": ConclusionKind.NOT_FOUND,
        "found": ConclusionKind.NOT_FOUND,
        "open": ConclusionKind.STATUS_OPEN,
        "pending": ConclusionKind.STATUS_PENDING,
    }
    found = re.search("|".join(keywords), text.lower())
    return Conclusion(keywords[found[0]] if found else ConclusionKind.NONE)


NEVER = re.compile(r"(?!)")
WRONG_JUDGES: dict[str, dict[str, object]] = {
    "ignores_negation_and_promises": {"_DENIED": NEVER},
    "ignores_negation_only": {"_DENIED": re.compile(judge._DENIED.pattern.replace("not|", "", 1))},
    "ignores_promises_only": {"_DENIED": re.compile(r"\b(?:not|never|neither|nobody)\b")},
    "ignores_questions": {"_before_question": lambda clauses, is_asked: clauses},
    "ignores_conditions": {"_CONDITION": NEVER},
    "ignores_later_dates": {"_POSTPONED": NEVER},
    "reads_quotations": {
        "_REWRITES": [row for row in judge._REWRITES if "[^\\\"]*" not in row[0].pattern]
    },
    "never_splits_clauses": {"_BREAK": NEVER},
    "never_rejoins_clauses": {"_rejoin": lambda clauses: clauses},
    "never_merges": {"_ABSORBS": {}},
    "takes_the_past_for_the_present": {"_PAST": NEVER},
    "takes_any_claim_of_several": {
        "_merge": lambda claims, asked_status: min((kind for kind, _ in claims), default="none")
    },
}


@pytest.mark.parametrize("name", WRONG_JUDGES)
def test_sentences_refuse_a_wrong_judge(name, monkeypatch):
    for attribute, planted in WRONG_JUDGES[name].items():
        monkeypatch.setattr(judge, attribute, planted)
    kinds = [(kind, str(conclude(text).kind)) for kind, text in LABELLED]
    assert any(expected != got for expected, got in kinds)


def test_sentences_refuse_a_judge_that_takes_the_first_keyword():
    assert len(_wrong(_first_keyword, LABELLED)) > len(LABELLED) // 4

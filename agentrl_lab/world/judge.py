"""Maps a reply to the one conclusion it tells the customer. Knows words, not tickets or tools.

A reply is cut into clauses; each yields claims (`_CLAIMS`), and a claim counts unless something
before it in its clause denies, postpones or doubts it. Claims that can hold together then merge;
others conflict, also when they are about two tickets: a reply has one conclusion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from agentrl_lab.records import Conclusion
from agentrl_lab.records import ConclusionKind as Kind

MAX_CHARS = 2000
"""Only this much of a reply is read: far more than an action may hold."""

_ID = r"s[0-9]+"
_MONEY = r"\b(?:payments?|invoice|bill|fee|balance)\b(?:(?! not\b).){0,40}?"  # then no "not"
_TICKET = rf"(?:(?:an?y?|the|this|that|your|such) ){{0,3}}(?:ticket|id|number|record|{_ID}|it)\b"
# "closed tickets" says nothing of this one
_PREDICATE = r"(?<!\ba )(?<!\bthe )\b{}\b(?! (?:tickets|cases|requests|ones)\b)"

# Rewritten in this order before anything else is read: quotations go, contractions and typos are
# spelled out, polite wrapping ("I can confirm that", "no problem") is peeled off.
_REWRITES = [(re.compile(pattern), words) for pattern, words in (
    (r"[\u2018\u2019]", "'"), (r"[*`]", ""),
    (r"^\s*[\"\u201c]([^\"\u201c\u201d]*)[\"\u201d]\s*$", r"\1"),  # a reply all in quotes
    (r"[\"\u201c'](#?\w+[.,!]?)[\"\u201d'](?!\w)", r"\1"),  # one quoted word is no quotation
    (r"\"[^\"]*\"|\u201c[^\u201c\u201d]*\u201d|(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*'(?!\w)", " "),
    (r"(?m)^[ \t]*>.*$", " "), (r"\b(?:can'?t|cannot)\b", "can not"), (r"\bwon'?t\b", "will not"),
    (r"\b(is|are|was|were|has|have|had|do|does|did|could|would|should)n'?t\b", r"\1 not"),
    (r"'s\b", " is"), (r"'ve\b", " have"), (r"'ll\b", " will"), (r"'d\b", " would"),
    (r"\b(?:clsoed|colsed|closd)\b", "closed"), (r"\ballready\b", "already"), (r"payed\b", "paid"),
    (r"\b(paid|closed|open|pending) ?[:=] ?(?:no|false)\b(?! ?\w)", r"not \1"),
    (r"\b(?:not only(?: is)?|do not worry|no (?:problem|worries|need)|please note)\b", " "),
    (r"\bnothing (?:left |more |else )?to (?:do|close|change)\b", " "),
    (r"\bwithout (?:any )?(?:problems?|issues?|trouble|delay)\b", " "),
    (r"\b(?:when|once|after) (?:i|we) (?:looked|checked|searched|tried|asked)\b", " "),
    (r"\b(?:can|will|must|want to|let me|to) (?:(?:now|also|be|glad|happy|pleased|to) ){0,3}"
     r"(?:confirm|inform|tell|say|report|hear|see|know|let you know)\b", " "), (r"[^\S\n]+", " "),
)]

_SUBJECT = (rf"(?:i|we|it|its|{_ID}|the|there|this|that|your?|is|was|has|have|had|can|could|does|"
            r"do|no|nobody|not|still|already|payment)\b")
_BREAK = re.compile(
    r"[;:()\[\]/=|\u2013\u2014]|->|--|(?<= )-(?= )|,(?! or | \w+,? or )"
    r"|\b(?:because|but|although|though|therefore|whereas|due to|which|so(?! far))\b"
    rf"|\b(?:and|or|(?<!far )(?<!soon )as|since|then|however|yet)\b(?= {_SUBJECT})")
_DANGLING = re.compile(r"\b(?:is|are|was|were|be|been|has|have|had|not|never|will)$")
_INVERTED = re.compile(
    rf"(?:so |and |or )?(?:(?:has|have) (?:{_ID}|i|we|it|the|this|that)\b.{{0,25}} been\b"
    r"|(?:is|was|do|does|did|can|could|shall|should|will|would|may) "
    rf"(?:{_ID}|i|we|it|you|the|this|that|there|your|ticket)\b)")
_ASKS = re.compile(r"(?:what|which|who|when|where|why|how|any|anything|is|are|has|have|need)\b")
_TAG = re.compile(r"(?:right|correct|ok|yes|no|true|is that|(?:is|has|was|did) (?:not )?it)\b")
_CONDITION = re.compile(
    r"\b(?:if|whether|unless|once|when|whenever|while|as soon as|in case|provided|"
    rf"(?:after|before|until) (?:it|{_ID}|the|this|that))\b")
_DENIED = re.compile(
    r"\b(?:not|never|no longer|neither|nor|none|nobody|nothing|hardly|without|unable|false|untrue|"
    r"nearly|almost|far from|will|would|can|could|shall|should|may|might|must|going to|let|please|"
    r"to (?:be|get|have)|being|maybe|perhaps|possibly|probably|wants?|need|office|shop|no ticket)\b"
    r"|\bno $|^(?:the )?(?:you|customer|he|she|they) (?:ask|said|say|claim|writ|wrote|want|wish)")
_POSTPONED = re.compile(r"\b(?:tomorrow|soon|shortly|in a moment|later today)\b")
_PAST = re.compile(r"\b(?:was|were|had been) (?:still )?(?:open|pending|unpaid|not paid)$")

# What one row has read, a later row does not read again: "closed" in "already closed".
_CLAIMS = [(kind, re.compile("|".join(patterns))) for kind, *patterns in (
    (Kind.UNPAID,
     _PREDICATE.format("unpaid"), r"\b(?:not|never) (?:(?:yet|been|fully|have) )*(?:paid|pay)\b",
     r"\bnobody .{0,6}paid\b", r"\bno (?:record of (?:a |any )?)?payments?\b(?! (?:is|are) )",
     r"\b(?:(?:could|can|did|do|have) )?not (?:find|see|received?|got) (?:(?:a|any|the) )?payment",
     rf"{_MONEY} (?:missing|outstanding|pending|due|overdue|unsettled|open)\b",
     rf"{_MONEY} not (?:(?:yet|been) )*(?:received|arrived|made|found|settled|paid|there)\b",
     r"\b(?:missing|outstanding|awaiting|pending|open|lacks|requires) (?:payment|invoice|bill)\b",
     r"\b(?:(?:can|could|will) )?(?:not|stays?|remains?|open)\b.{0,40}?"
     r" (?:until|unless|before|without)\b.{0,30}? (?:paid|pay|payment)\b",
     r"\b(?:(?:can|could) )?only\b.{0,30}? (?:once|after|when|if)\b.{0,30}? (?:paid|payment)\b",
     r"\bplease pay\b|\b(?:must|needs? to|has to|have to) (?:first )?(?:be paid|pay)\b"),
    (Kind.NOT_FOUND,
     rf"\bno (?:such |matching )?(?:ticket\b(?! (?:is|was|has|can|will)\b)|{_ID}|record of)",
     r"\b(?:found nothing|(?:nothing|no ticket) (?:was |could be )?found|nowhere to be found)\b",
     r"\b(?:(?:do|does|did) )?not (?:(?:seem|appear|to) )*exist\b|\bneither .{0,40} exists?\b",
     r"\b(?:(?:can|could|was) )?not (?:be |been )?(?:found|located)\b(?! (?:an?y?|out)\b)",
     rf"\b(?:(?:(?:can|could|did) )?not|unable to|failed to) (?:find|found|locate) {_TICKET}",
     r"\b(?:never existed|(?:unknown|invalid|not a valid) (?:ticket|id|number)|not any ticket)\b",
     rf"\b(?:id|number|ticket|{_ID}) is (?:unknown|invalid|not (?:valid|known|a ticket))\b",
     r"\b(?:not in (?:our|the|my) (?:system|database|records)|not have (?:an?y?|that) ticket)\b"),
    (Kind.CLOSED,
     r"\b(?:i|we) (?:(?:have|just|now|then|also|already|went ahead and) ){0,3}closed\b",
     r"\b(?:has|have) (?:now |just )?been (?:successfully )?closed\b(?! (?:since|before|already))",
     r"\b(?:managed|was able|were able) to close\b", r"\bclosure .{0,20} (?:complete|done)\b",
     r"(?<!already )\b(?:(?:set|changed|moved|updated)\b.{0,50}? to|marked .{0,30}?as) closed\b"),
    (Kind.ALREADY_CLOSED,
     r"\b(?:already (?:(?:been|marked|set|as|to|in|the) ){0,3}|had been |previously )closed\b",
     r"\bclosed (?:.{0,20} )?(?:already|before|earlier|previously|since|yesterday|last|ago)\b"),
    (Kind.STATUS_CLOSED, _PREDICATE.format("closed")),
    (Kind.STATUS_PENDING, _PREDICATE.format("pending")),
    (Kind.STATUS_OPEN,
     r"(?:^|\b(?:is|are|was|been|remains?|stays?|still|now|says|shows|reads|status|as|left it|"
     rf"{_ID}) )(?:also |still |now )?(?:[a-z]+ly )?open\b"
     r"(?! (?:an?|the|to|question|tickets?|your|new)\b)"),
)]
_CLOSED_TOO, _NOT_YET = {Kind.STATUS_CLOSED}, {Kind.STATUS_OPEN, Kind.STATUS_PENDING}
_ABSORBS = {Kind.CLOSED: _CLOSED_TOO, Kind.ALREADY_CLOSED: _CLOSED_TOO, Kind.UNPAID: _NOT_YET}


@lru_cache(maxsize=1024)  # the oracle and a trained policy say the same few sentences again
def conclude(text: str) -> Conclusion:
    """The conclusion of any text, and every ticket id in it in order of first mention.

    >>> conclude("I have not closed S4821: it is unpaid.")
    Conclusion(kind=<ConclusionKind.UNPAID: 'unpaid'>, ticket_ids=('S4821',))
    """
    head = text[:MAX_CHARS].lower()
    ticket_ids = tuple(dict.fromkeys(name.upper() for name in re.findall(rf"\b{_ID}\b", head)))
    claims = {claim for clause in _asserted_clauses(head) for claim in _claims(clause)}
    return Conclusion(_merge(claims, asked_status="status" in head), ticket_ids)


def _asserted_clauses(head: str) -> Iterator[str]:
    """The clauses the reply stands for: no quotation, no question, nothing that hangs on an if."""
    for pattern, words in _REWRITES:
        head = pattern.sub(words, head)
    for sentence, end in re.findall(r"([^.!?\n]+)([.!?]*)", head):
        clauses = _rejoin([clause.strip() for clause in _BREAK.split(sentence) if clause.strip()])
        yield from _before_question(clauses, is_asked="?" in end)


def _rejoin(clauses: list[str]) -> list[str]:
    """The same clauses, with "it is | I fear | closed" read as "I fear | it is closed"."""
    joined = clauses.copy()
    for i in range(len(joined) - 1):
        if _DANGLING.search(joined[i]):
            rest = min(i + 2, len(joined) - 1)
            joined[rest], joined[i] = f"{joined[i]} {joined[rest]}", ""
    return [clause for clause in joined if clause]


def _before_question(clauses: list[str], *, is_asked: bool) -> list[str]:
    """The clauses of one sentence up to its question or its leading condition."""
    if is_asked and _TAG.match(clauses[-1] if clauses else ""):
        return []
    for i, clause in enumerate(clauses):
        asks = _INVERTED.match(clause) or (is_asked and _ASKS.match(clause))
        if asks or _CONDITION.match(clause):
            return clauses[:i]
    return [] if is_asked else clauses


def _claims(clause: str) -> Iterator[tuple[Kind, bool]]:
    """Each claim of a clause, and whether it is only about the past ("was unpaid")."""
    unread = "" if _POSTPONED.search(clause) else clause
    for kind, pattern in _CLAIMS:
        for match in pattern.finditer(unread):
            before = clause[: match.start()]
            unread = unread[: match.start()] + "#" * len(match[0]) + unread[match.end() :]
            if not (_DENIED.search(before) or _CONDITION.search(before)):
                yield kind, _PAST.search(clause[: match.end()]) is not None


def _merge(claims: set[tuple[Kind, bool]], *, asked_status: bool) -> Kind:
    """One kind for all claims. The past counts only where the present is silent."""
    kinds = {kind for kind, is_past in claims if not is_past} or {kind for kind, _ in claims}
    kinds -= {weaker for kind in kinds for weaker in _ABSORBS.get(kind, ())}
    if len(kinds) != 1:
        return Kind.CONFLICTING if kinds else Kind.NONE
    (kind,) = kinds
    return Kind.CLOSED if kind is Kind.STATUS_CLOSED and not asked_status else kind

"""Guesses at the next tokens. They change no result, they only save forward passes.

An action repeats what was written before: its syntax, the id in the request. A forward pass over
several tokens of a few rows takes hardly longer than over one, and each token's sampling noise is
fixed, so a guess is right exactly if the token sampled at its place is the guessed one; from the
first wrong guess on, everything is dropped.

Source: Leviathan et al. 2023, Fast inference from transformers via speculative decoding; with
fixed noise there is nothing to correct, and the draft needs no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Follower:
    """Which token came after a token, and after two, when they were last seen."""

    after: dict[tuple[int, ...], int] = field(default_factory=dict)

    def read(self, ids: Sequence[int], start: int) -> None:
        """Reads a row from a position on, which is 2 at least."""
        for at in range(start, len(ids)):
            self.after[ids[at - 2], ids[at - 1]] = self.after[ids[at - 1],] = ids[at]


def guess(ids: Sequence[int], most: int, own: Follower, all_rows: Follower) -> list[int]:
    """At most `most` tokens that may follow: as in this row after two tokens, else as in any row,
    else as in this row after one.
    """
    before, last = ids[-2:]
    guessed: list[int] = []
    while len(guessed) < most:
        pair = before, last
        token = own.after.get(pair, all_rows.after.get(pair, own.after.get((last,))))
        if token is None:
            break
        guessed.append(token)
        before, last = last, token
    return guessed

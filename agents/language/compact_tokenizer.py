"""Compact tokenization of histories for small critics.

The vocabulary of a critic that is trained from scratch gets additional words. In the header of a message, one word
replaces each agent's name. Tokens with which the previous message also begins or ends become words for powers of two:
6 tokens become the words for 4 and 2. In small games, joint histories keep a third of their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ...envs.core import Message
from ..encoding import Encoder

MAX_NAMES = 32
MAX_POWER = 15
NUM_OWN_WORDS = 2 * MAX_POWER + 2 * MAX_NAMES  # words that a compact tokenizer adds to a vocabulary
MIN_REPEATED = 4  # tokens; shorter repetitions save almost nothing
_HEADER = re.compile(r"\[([^\[\]\n]+) (reads|writes)\] ")


class CompactTokenizer:
    """Lossless compact tokenizer. The ids of its `NUM_OWN_WORDS` additional words start at `first_word`."""

    def __init__(self, encoder: Encoder, first_word: int):
        self.encoder = encoder
        self.first_word = first_word

    def pieces(self, messages: Sequence[Message]) -> list[list[int]]:
        """Return the token ids of each message, which depend on the previous messages."""
        names: dict[str, int] = {}
        earlier: list[int] = []  # token ids of the previous message
        found = []
        for message in messages:
            header = self._header(message.content, names)
            if header is None:
                earlier = self.encoder.content(f"{message.content}\n")
                found.append(earlier)
                continue
            words, text = header
            ids = self.encoder.content(text)
            found.append([*words, *self._without_repeats(ids, earlier)])
            earlier = ids
        return found

    def _header(self, content: str, names: dict[str, int]) -> tuple[list[int], str] | None:
        """Return a word per agent in the header, and the text after the header. None: no header, or too many agents."""
        match = _HEADER.match(content)
        if match is None:
            return None
        for name in match[1].split(", "):
            names.setdefault(name, len(names))
        if len(names) > MAX_NAMES:
            return None
        kind = 0 if match[2] == "reads" else 1
        first = self.first_word + 2 * MAX_POWER
        words = [first + 2 * names[name] + kind for name in match[1].split(", ")]
        return words, content[match.end() :]

    def _without_repeats(self, ids: list[int], earlier: list[int]) -> list[int]:
        """Replace the tokens with which two messages both begin or end by words for powers of two."""
        front = _powers(_num_equal(ids, earlier))
        num_front = sum(2 ** (k + 1) for k in front)
        back = _powers(_num_equal(ids[num_front:][::-1], earlier[num_front:][::-1]))
        kept = ids[num_front : len(ids) - sum(2 ** (k + 1) for k in back)]
        return [*(self.first_word + k for k in front), *kept, *(self.first_word + MAX_POWER + k for k in back)]


def _powers(count: int) -> list[int]:
    """Split a count into powers of two (2, 4, …) and return their exponents minus 1. Counts below 4: empty list."""
    return [k for k in reversed(range(MAX_POWER)) if count >= MIN_REPEATED and count >> (k + 1) & 1]


def _num_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))

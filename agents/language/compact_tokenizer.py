"""Compact tokenization of histories for small critics.

A critic that is trained from scratch can have words of its own in its vocabulary. The agent that reads or writes
becomes one word. If a message begins or ends with the same tokens as the message before it (two agents that read one
text with different tasks), these tokens become one word per power of two in their number. In small games a third of the
tokens of joint histories remains. The ids of a message depend only on the messages so far.

Critics from a pretrained model read every message as it is written (`PlainTokenizer`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...envs.core import Message
from ..encoding import Encoder

MAX_NAMES = 32
MAX_POWER = 15
NUM_OWN_WORDS = 2 * MAX_POWER + 2 * MAX_NAMES
MIN_REPEATED = 4  # tokens; fewer are hardly longer than the words for them
_HEADER = re.compile(r"\[([^\[\]\n]+) (reads|writes)\] ")


class PlainTokenizer:
    """Token ids of messages as they are written, each with a line end."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder

    def pieces(self, messages: Sequence[Message]) -> list[list[int]]:
        """The ids of each message, after those before it."""
        return [self.encoder.content(f"{message.content}\n") for message in messages]


class CompactTokenizer:
    """Lossless shorter token ids, for a model with `NUM_OWN_WORDS` more words than the tokenizer.

    Args:
        encoder: gives the token ids of text.
        first_word: id of the first own word.
    """

    def __init__(self, encoder: Encoder, first_word: int):
        self.encoder = encoder
        self.first_word = first_word

    def pieces(self, messages: Sequence[Message]) -> list[list[int]]:
        """The ids of each message, after those before it."""
        names: dict[str, int] = {}  # numbered as they appear
        earlier: list[int] = []  # what the message before says
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
        """One word per agent that reads or writes, and the remaining text. None: without agents, or with too many."""
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
        """The ids, in which the beginning and end that they share with the earlier message are words."""
        front = self._repeated(_num_equal(ids, earlier))
        num_front = _num_tokens(front)
        back = self._repeated(_num_equal(ids[num_front:][::-1], earlier[num_front:][::-1]))
        kept = ids[num_front : len(ids) - _num_tokens(back)]
        return [*(self.first_word + k for k in front), *kept, *(self.first_word + MAX_POWER + k for k in back)]

    @staticmethod
    def _repeated(count: int) -> list[int]:
        """Exponents minus 1 of the powers of two that sum to a count; an odd last token is left out."""
        return [k for k in reversed(range(MAX_POWER)) if count >= MIN_REPEATED and count >> (k + 1) & 1]


def _num_tokens(exponents: Sequence[int]) -> int:
    return sum(2 ** (k + 1) for k in exponents)


def _num_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of equal first entries."""
    for count, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return count
    return min(len(a), len(b))

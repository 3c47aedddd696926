"""Only for small critics, histories as fewer token ids; append-only, each message's ids a function of those so far.

A critic trained from scratch can have words of its own in its vocabulary. Who reads or writes becomes one word, and as
much of a message's beginning or end as the message just before says too (two agents shown one text with different
tasks) becomes a word per power of two in its length. On joint histories of small games a third of the tokens is left.
Critics made from a pretrained model read every message as it is written (`PlainReader`).
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


class PlainReader:
    """Every message as it is written, closed by a line end."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder

    def pieces(self, messages: Sequence[Message]) -> list[list[int]]:
        """The ids of each message, after those before it."""
        return [self.encoder.content(f"{message.content}\n") for message in messages]


class CompactReader:
    """Without loss, for a model whose vocabulary has `NUM_OWN_WORDS` more than the tokenizer.

    Args:
        encoder: makes the text's ids.
        first_word: the number of the first own word.
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
        """A word for each agent that reads or writes, and the rest; None where nobody is named, or too many are."""
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
        """The ids, with words for how much of their beginning and of their end is the earlier message's too."""
        front = self._repeated(_num_equal(ids, earlier))
        num_front = _num_tokens(front)
        back = self._repeated(_num_equal(ids[num_front:][::-1], earlier[num_front:][::-1]))
        kept = ids[num_front : len(ids) - _num_tokens(back)]
        return [*(self.first_word + k for k in front), *kept, *(self.first_word + MAX_POWER + k for k in back)]

    @staticmethod
    def _repeated(count: int) -> list[int]:
        """The exponents of two, less one, that make up a count, a last single token left out."""
        return [k for k in reversed(range(MAX_POWER)) if count >= MIN_REPEATED and count >> (k + 1) & 1]


def _num_tokens(exponents: Sequence[int]) -> int:
    return sum(2 ** (k + 1) for k in exponents)


def _num_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """How many of the first entries are equal."""
    for count, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return count
    return min(len(a), len(b))

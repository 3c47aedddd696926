"""How texts become numbers and numbers texts: by bytes, or by the words of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Codec(Protocol):
    """A reversible numbering of texts; any tokenizer fits behind it."""

    size: int
    """Ids run from 0 to size - 1."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; of any ids, as a policy that learns writes what it likes."""


class ByteCodec:
    """UTF-8: 256 ids, any text. Bytes that are no text are read as the replacement character."""

    size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="replace"))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class WordCodec:
    """The words of a list, set apart by blanks. Small policies learn over words what they would not over bytes.

    Args:
        words: without doubles; words of a text that are not among them are left out.

    Raises:
        ValueError: if there are no words, doubles, or words with blanks in them.
    """

    def __init__(self, words: Sequence[str]):
        self.words = tuple(words)
        self.size = len(self.words)
        self._ids = {word: number for number, word in enumerate(self.words)}
        wrong = [word for word in self.words if word.split() != [word]]
        if not self.words or len(self._ids) < self.size or wrong:
            raise ValueError(
                f"a WordCodec needs different words without blanks, at least one; {wrong or words} will not do"
            )

    def encode(self, text: str) -> list[int]:
        return [self._ids[word] for word in text.split() if word in self._ids]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[number] for number in ids)

"""Texts as arrays of token ids, for libraries whose policies read and write numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, get_args

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete, Space
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from .view import View, require_text


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


Kind = Literal["box", "multi_discrete", "bag"]


class TokenObservations(View):
    """Observations as the last `length` token ids, padded in front, so that the newest text is always at the end.

    Observation space: "box", `Box(0, 1, (length,), float32)` of (id + 1) / size with 0 for padding; "multi_discrete",
    `MultiDiscrete([size + 1] * length)` of id + 1 with 0 for padding; or "bag", `Box(0, 1, (size,), float32)` with 1
    for each id that is among them. Action space: unchanged.

    Args:
        env: an environment of texts.
        length: tokens that are seen.
        kind: floats cost other libraries a fifth of the time of ids, which they turn into one-hot vectors. Where it
            matters which words there are and not where, small networks learn soonest from a bag.
        codec: from text to ids; None: bytes.
        agents: whose view it is; None: everybody's.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        length: int = 256,
        kind: Kind = "box",
        codec: Codec | None = None,
        agents: Iterable[str] | None = None,
    ):
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
        self.length = length
        self.kind = kind
        self.codec: Codec = ByteCodec() if codec is None else codec
        super().__init__(env, agents)

    def seen_space(self, space: Space[Any]) -> Space[Any]:
        require_text(space, "TokenObservations")
        if self.kind != "multi_discrete":
            return Box(0.0, 1.0, (self.length if self.kind == "box" else self.codec.size,), np.float32)
        return MultiDiscrete([self.codec.size + 1] * self.length)

    def seen(self, agent: str, observation: str) -> NDArray[Any]:
        ids = self.codec.encode(observation)[-self.length :]
        if self.kind == "bag":
            bag = np.zeros(self.codec.size, np.float32)
            bag[ids] = 1.0
            return bag
        seen = np.zeros(self.length, np.int64)
        seen[self.length - len(ids) :] = np.asarray(ids, np.int64) + 1
        return (seen / self.codec.size).astype(np.float32) if self.kind == "box" else seen


class TokenActions(View):
    """Actions as token ids, read up to the first stop id, which is the codec's size.

    Action space: `MultiDiscrete([size + 1] * length)`. Observation space: unchanged.

    Args:
        env: an environment of texts.
        length: tokens of a reply, at most.
        codec: from ids to text; None: bytes.
        agents: whose view it is; None: everybody's.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        length: int = 32,
        codec: Codec | None = None,
        agents: Iterable[str] | None = None,
    ):
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self.length = length
        self.codec: Codec = ByteCodec() if codec is None else codec
        super().__init__(env, agents)

    @property
    def stop_id(self) -> int:
        """The id that ends a reply."""
        return self.codec.size

    def acting_space(self, space: Space[Any]) -> Space[Any]:
        require_text(space, "TokenActions")
        return MultiDiscrete([self.codec.size + 1] * self.length)

    def acted(self, agent: str, action: Any) -> str:
        ids = np.asarray(action, np.int64).ravel().tolist()
        return self.codec.decode(ids[: ids.index(self.stop_id)] if self.stop_id in ids else ids)

"""Views that convert texts to arrays of token ids, for policies whose inputs and outputs are numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, get_args

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete, Space
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from .view import View, require_text


class Codec(Protocol):
    """Interface of tokenizers, which convert texts to ids and ids to texts."""

    size: int
    """Number of token ids, which are 0 to size - 1."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Convert ids to text. Must not raise an error for any sequence of ids."""


class ByteCodec:
    """Tokenizer whose ids are the bytes of UTF-8. Invalid bytes are decoded to the replacement character."""

    size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="replace"))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class WordCodec:
    """Tokenizer whose tokens are the words of a list. Small policies learn faster with words than with bytes.

    Args:
        words: different words without spaces, at least one. Other words of a text are dropped.
    """

    def __init__(self, words: Sequence[str]):
        self.words = tuple(words)
        self.size = len(self.words)
        self._ids = {word: number for number, word in enumerate(self.words)}
        wrong = [word for word in self.words if word.split() != [word]]
        if not self.words or len(self._ids) < self.size or wrong:
            raise ValueError(f"WordCodec needs at least one word, no duplicates and no spaces, got {wrong or words}")

    def encode(self, text: str) -> list[int]:
        return [self._ids[word] for word in text.split() if word in self._ids]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[number] for number in ids)


Kind = Literal["box", "multi_discrete", "bag"]


class TokenObservations(View):
    """Converts observations to their last `length` token ids, padded at the start. Action space: unchanged.

    Observation space by kind:

    * "box": `Box(0, 1, (length,), float32)` of (id + 1) / size, with 0 for padding;
    * "multi_discrete": `MultiDiscrete([size + 1] * length)` of id + 1, with 0 for padding;
    * "bag": `Box(0, 1, (size,), float32)`, with 1 for each id that occurs.

    Args:
        env: a text environment.
        length: number of tokens.
        kind: see above. "multi_discrete" is slow in libraries that convert it to one-hot vectors. "bag" is best for
            small networks if the order of words does not matter.
        codec: tokenizer. None: `ByteCodec`.
        agents: agents whose observations are converted. None: all.
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
    """Converts actions from token ids to text. The text ends at the first stop id, which is `codec.size`.

    Action space: `MultiDiscrete([size + 1] * length)`. Observation space: unchanged.

    Args:
        env: a text environment.
        length: maximum number of tokens per reply.
        codec: tokenizer. None: `ByteCodec`.
        agents: agents whose actions are converted. None: all.
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
        return self.codec.size

    def acting_space(self, space: Space[Any]) -> Space[Any]:
        require_text(space, "TokenActions")
        return MultiDiscrete([self.codec.size + 1] * self.length)

    def acted(self, agent: str, action: Any) -> str:
        ids = np.asarray(action, np.int64).ravel().tolist()
        return self.codec.decode(ids[: ids.index(self.stop_id)] if self.stop_id in ids else ids)

"""OpenText: the space of all texts of bounded length, in any script."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from gymnasium.spaces import Space, Text
from gymnasium.spaces.utils import flatdim, flatten, flatten_space
from gymnasium.vector.utils import create_shared_memory

# Short, and with what breaks naive consumers: a space, a line end, letters of more than one byte.
_SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .\né数"
_MAX_SAMPLE_LENGTH = 24


def is_unicode_text(text: str) -> bool:
    """Whether the string can be written as UTF-8; a lone surrogate cannot, and tokenizers raise on it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class OpenText(Text):
    """Texts of `min_length` to `max_length` characters, of any characters but lone surrogates.

    Gymnasium's `Text` enumerates its characters, which all of Unicode makes unusable (a second to build, megabytes
    to pickle); its default allows neither a space nor a line end. This one only bounds the length. It stays a `Text`,
    so that libraries which dispatch on the type still recognise it.

    Args:
        max_length: in characters.
        min_length: in characters; 0 allows the empty text.
        seed: starts what `sample` draws.

    Raises:
        ValueError: if not 0 <= min_length <= max_length.
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None):
        if not 0 <= min_length <= max_length:
            raise ValueError(f"OpenText needs 0 <= min_length <= max_length, got {min_length} and {max_length}")
        super().__init__(max_length, min_length=min_length, charset=_SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length and is_unicode_text(x)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short random text, line ends and letters of several bytes among it; masks are not supported."""
        if mask is not None or probability is not None:
            raise ValueError("OpenText has no fixed characters to mask; call sample() without mask and probability")
        upper = max(self.min_length, min(self.max_length, _MAX_SAMPLE_LENGTH))
        length = int(self.np_random.integers(self.min_length, upper + 1))
        return "".join(_SAMPLE_CHARACTERS[i] for i in self.np_random.integers(len(_SAMPLE_CHARACTERS), size=length))

    def __repr__(self) -> str:
        return f"OpenText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenText) and (self.min_length, self.max_length) == (
            other.min_length,
            other.max_length,
        )

    def __hash__(self) -> int:
        return hash((OpenText, self.min_length, self.max_length))


def _refuse_flattening(space: Space[Any], *_: Any) -> NoReturn:
    raise TypeError(f"{space} has no fixed characters to number; use collm.envs.views to turn texts into token ids")


for _function in (flatdim, flatten, flatten_space):
    _function.register(OpenText, _refuse_flattening)


@create_shared_memory.register(OpenText)
def _create_shared_memory(space: OpenText, n: int = 1, ctx: Any = None) -> Any:
    # gymnasium would read a Text from shared memory once and return that first text at every later step.
    raise TypeError(
        f"{space} cannot lie in shared memory; pass vector_kwargs={{'shared_memory': False}} to gymnasium.make_vec, "
        "or shared_memory=False to AsyncVectorEnv"
    )

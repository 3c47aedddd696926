"""Text of models, environments and files in a terminal: control characters are shown, never obeyed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all control characters but tab and line feed; 0x9b alone begins a sequence too
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these turn the direction of writing
    "\u2028\u2029\ud800-\udfff\ufff9-\ufffb]"  # these end lines, or cannot be encoded at all
)


def shown(text: object) -> str:
    """Text that a terminal prints as it is: what it would obey is written as an escape, such as `\\x1b`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), str(text))


def terminal(**options: Any) -> Console:
    """Console that prints texts as they are: rich would print `openai:m:` as a picture of an m.

    Args:
        options: arguments of rich's `Console`.
    """
    from rich.console import Console  # here, as not all commands print by rich

    return Console(emoji=False, **options)

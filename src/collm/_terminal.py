"""Safe output of untrusted text in a terminal: control characters are escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all control characters except tab and line feed; 0x9b alone also starts a sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these change the direction of writing
    "\u2028\u2029\ud800-\udfff\ufff9-\ufffb]"  # these end lines, or cannot be encoded at all
)


def shown(text: object) -> str:
    """Escape the control characters in a text: ESC becomes `\\x1b`."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), str(text))


def print_line(text: object, console: Console | None = None) -> None:
    """Print a text without markup, colours and wrapping. Control characters are escaped."""
    (console or terminal()).print(shown(text), markup=False, highlight=False, soft_wrap=True)


def terminal(**options: Any) -> Console:
    """Return a `rich.console.Console` without emoji codes, because these would change texts such as `openai:m:`."""
    from rich.console import Console  # here, because some commands do not need rich

    return Console(emoji=False, **options)

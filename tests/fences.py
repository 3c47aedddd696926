"""Fenced blocks of Markdown pages."""

from __future__ import annotations

import re


def fenced(text, info):
    """What stands in each block of a page whose opening fence says this, such as "sh" or "python run"."""
    return re.findall(rf"(?ms)^```{re.escape(info)}\n(.*?)^```$", text)

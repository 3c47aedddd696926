"""Mistakes in a call of `collm`, shown as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._errors import UserError

__all__ = ["UserError", "refusals"]


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors in what a person typed into `UserError`, one line in place of a traceback."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OSError, ImportError) as error:
        # A KeyError shows its message in quotation marks.
        raise UserError(str(error.args[0]) if isinstance(error, KeyError) else str(error)) from error

"""The error for what a person, a file or a service got wrong; every other exception is a fault of the program."""

from __future__ import annotations


class UserError(ValueError):
    """Something asked for cannot be: the message says what, which value, and how to mend it.

    The command line prints the message alone, on one line; any other exception shows its traceback.
    """

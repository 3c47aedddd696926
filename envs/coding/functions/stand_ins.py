"""Code that replaces a helper's function or the main function, to test whether a solution needs both."""

from __future__ import annotations

_OWN_FIRST_VALUE = """\
def _repeating(function):
    values = []

    def repeated(*arguments, **named):
        if not values:
            values.append(function(*arguments, **named))
        return values[0]

    return repeated


{name} = _repeating({name})"""
_FIRST_ARGUMENT = """\
def {name}(*arguments, **named):
    return [*arguments, *named.values(), None][0]"""
_NO_VALUE = """\
def {name}(*arguments, **named):
    raise ValueError("no value")"""
_ALONE = """\
def {main}(*arguments, **named):
    return {name}(*arguments, **named)"""


def of_helper(name: str) -> tuple[str, ...]:
    """Functions in place of a helper's, defined after it: its own first value always, its first argument, an error."""
    return tuple(code.format(name=name) for code in (_OWN_FIRST_VALUE, _FIRST_ARGUMENT, _NO_VALUE))


def of_main(main: str, name: str) -> str:
    """A main function, defined after the real one, that only hands its arguments on to a helper's function."""
    return _ALONE.format(main=main, name=name)

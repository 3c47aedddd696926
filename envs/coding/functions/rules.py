"""Rules of the divided function: what the programs of a team are, and the terms of its reward.

    score = 0.4 share of helpers that define their function and return something of it
            + 0.6 [main is defined], and if it is
            + 0.5 [all together parse], and if they do
            + 0.5 share of tests passed + 0.5 [all tests passed], and if all passed
            + 0.5 share of helpers called by main + 1.0 of it [main is more than a thin wrapper of them]
            - 0.5 share of helpers whose results main ignores

With `needs_both`, a helper of a solution counts only if it is needed: with another function in its place a test fails,
and its function alone does not pass all tests. A helper that is not needed counts as one that wrote nothing.

4.0 at most. A team that fails a test has less than 2.0, one that solves the task at least 2.1: how a program came about
is worth something only where it works. Terms and maxima are those of CoMLRL's code generation tasks (arXiv:2508.04652,
`published`), which have one helper and pay for cooperation where one test passes; they are decided on syntax trees
here, so that a comment or a string which looks like code earns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..extraction import Code
from ..syntax import (
    function_named,
    ignores_result,
    is_thin_wrapper,
    needed_statements,
    returns_value,
    source,
    uses_function,
)
from .problems import Problem

MAX_SCORE = 4.0


@dataclass(frozen=True)
class Helper:
    """A helper's program, looked at but not run."""

    code: str
    """As far as the helper's function needs it; empty if there is none."""
    is_defined: bool
    """Whether the function is there, and returns something."""
    is_called: bool
    """Whether main calls it."""
    is_ignored: bool
    """Whether main calls it for nothing."""
    is_needed: bool = True
    """Whether it counts in a solution: False only with `needs_both`."""


@dataclass(frozen=True)
class Programs:
    """All programs of a team, looked at but not run."""

    helpers: tuple[Helper, ...]
    main: str
    """The main programmer's code as far as its function needs it; empty if there is none."""
    is_main_defined: bool
    is_parsed: bool
    """Whether all parse together."""
    is_thin_wrapper: bool

    @property
    def is_runnable(self) -> bool:
        return self.is_main_defined and self.is_parsed

    @property
    def codes(self) -> tuple[str, ...]:
        """The helpers' code, then the main programmer's."""
        return (*(helper.code for helper in self.helpers), self.main)

    def program(self, preamble: str, *, after_helpers: str = "", after_main: str = "") -> str:
        """What is tested: what the prompt gives, then the helpers' code, then the main programmer's."""
        *helpers, main = self.codes
        parts = (preamble, *helpers, after_helpers, main, after_main)
        return "\n\n".join(part for part in parts if part) + "\n"


def programs_of(problem: Problem, helpers: Sequence[Code], main: Code) -> Programs:
    """The programs in the team's code.

    Each is taken at its own function and what that needs: the others' functions, where somebody wrote those too, and
    examples of use are left out. What does not parse is kept, and keeps the team from parsing, only if the function
    is not found elsewhere.
    """
    names = {*problem.helpers, problem.entry_point}
    also = (*problem.functions, *problem.classes)
    main_part = needed_statements(main.statements, problem.entry_point, foreign={*problem.helpers}, also=also)
    main_function = function_named(main_part, problem.entry_point)
    main_text = source(main_part)
    found = []
    is_broken = main_text is None
    for name, code in zip(problem.helpers, helpers, strict=True):
        part = needed_statements(code.statements, name, foreign=names - {name})
        function, text = function_named(part, name), source(part)
        is_broken = is_broken or text is None or bool(not part and code.broken)
        is_called = bool(function and main_function) and uses_function(main_part, name)
        found.append(
            Helper(
                code=(text if part else code.broken) or "",
                is_defined=function is not None and returns_value(function),
                is_called=is_called,
                is_ignored=is_called and ignores_result(main_part, name),
            )
        )
    return Programs(
        helpers=tuple(found),
        main=(main_text if main_part else main.broken) or "",
        is_main_defined=main_function is not None,
        is_parsed=main_function is not None and not is_broken,
        is_thin_wrapper=main_function is not None and is_thin_wrapper(main_function, *problem.helpers),
    )


def terms(programs: Programs, pass_rate: float, *, is_solved: bool) -> dict[str, float]:
    """The parts of the score.

    Args:
        programs: the team's.
        pass_rate: share of tests passed, 0 to 1; 0 if they were not run.
        is_solved: whether all passed, and the program ran to its end.
    """
    helpers = programs.helpers
    is_cooperative = programs.is_runnable and is_solved
    called = share(helper.is_called and helper.is_needed for helper in helpers) * is_cooperative
    return {
        "aux_defined": 0.4 * share(helper.is_defined and helper.is_needed for helper in helpers),
        "main_defined": 0.6 * programs.is_main_defined,
        "parses": 0.5 * programs.is_runnable,
        "tests": (0.5 * pass_rate + 0.5 * is_solved) * programs.is_runnable,
        "calls_aux": 0.5 * called,
        "more_than_wrapper": 1.0 * called * (not programs.is_thin_wrapper),
        "ignores_aux": 0.0 - 0.5 * share(helper.is_ignored and helper.is_needed for helper in helpers) * is_cooperative,
    }


def share(flags: Iterable[bool]) -> float:
    """How many of the flags are true, of all."""
    return fmean(flags)


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


def helper_stand_ins(name: str) -> tuple[str, ...]:
    """Functions in place of a helper's, defined after it: its own first value always, its first argument, an error."""
    return tuple(code.format(name=name) for code in (_OWN_FIRST_VALUE, _FIRST_ARGUMENT, _NO_VALUE))


def main_stand_in(main: str, name: str) -> str:
    """A main function, defined after the real one, that only hands its arguments on to a helper's function."""
    return _ALONE.format(main=main, name=name)

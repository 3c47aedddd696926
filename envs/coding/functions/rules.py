"""Rules of HumanEval, MBPP and CoopHumanEval: checks of the team's programs, and terms of the reward.

    score = 0.4 fraction of helpers that define their function, which returns a value
            + 0.6 [main is defined], and if main is defined
            + 0.5 [all programs together parse], and if they parse
            + 0.5 fraction of tests passed + 0.5 [all tests passed], and if all passed
            + 0.5 fraction of helpers that main calls
            + 1.0 fraction of helpers that main calls [main is more than a thin wrapper of the helpers]
            - 0.5 fraction of helpers whose results main ignores

Cooperation is rewarded only if all tests pass. Therefore a team that fails a test gets less than 2.0, and a team that
solves the task gets 2.1 to 4.0. With `needs_both`, a helper that the solution does not need is scored like a missing
helper. A helper is needed if a test fails when another function replaces it, and when main only calls it.

Source: CoMLRL's code generation tasks (arXiv:2508.04652; exact terms in `published`). CoMLRL has one helper, rewards
cooperation if one test passes, and searches the text. This module checks the syntax tree, so that comments and strings
are not mistaken for code.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Syntactic properties of a helper's program."""

    code: str  # code of the helper's function and of the definitions that it needs. Empty: there is no function.
    is_defined: bool  # True if the function exists and returns a value
    is_called: bool
    is_ignored: bool  # True if main calls the function and uses none of its return values
    is_needed: bool = True  # False if the team's solution does not need the helper. Only tested with `needs_both`.


@dataclass(frozen=True)
class Programs:
    """Syntactic properties of all programs of a team."""

    helpers: tuple[Helper, ...]
    main: str  # code of the main function and of the definitions that it needs. Empty: there is no main function.
    is_main_defined: bool
    is_parsed: bool  # True if the joined programs parse
    is_thin_wrapper: bool

    @property
    def is_runnable(self) -> bool:
        return self.is_main_defined and self.is_parsed

    @property
    def codes(self) -> tuple[str, ...]:
        return (*(helper.code for helper in self.helpers), self.main)

    def program(self, preamble: str, *, after_helpers: str = "", after_main: str = "") -> str:
        """Join the code of the prompt, the helpers and the main programmer."""
        *helpers, main = self.codes
        parts = (preamble, *helpers, after_helpers, main, after_main)
        return "\n\n".join(part for part in parts if part) + "\n"


def programs_of(problem: Problem, helpers: Sequence[Code], main: Code) -> Programs:
    """Extract each agent's function and the code that the function needs.

    If an agent's function is not found and a part of the agent's code does not parse, this part is kept. The joined
    program then does not parse.
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
    """Compute the reward terms of a turn by name. `pass_rate`: fraction of tests passed, 0 if the tests did not run."""
    helpers = programs.helpers
    is_cooperative = programs.is_runnable and is_solved
    called = fmean(helper.is_called and helper.is_needed for helper in helpers) * is_cooperative
    return {
        "aux_defined": 0.4 * fmean(helper.is_defined and helper.is_needed for helper in helpers),
        "main_defined": 0.6 * programs.is_main_defined,
        "parses": 0.5 * programs.is_runnable,
        "tests": (0.5 * pass_rate + 0.5 * is_solved) * programs.is_runnable,
        "calls_aux": 0.5 * called,
        "more_than_wrapper": 1.0 * called * (not programs.is_thin_wrapper),
        "ignores_aux": 0.0 - 0.5 * fmean(helper.is_ignored and helper.is_needed for helper in helpers) * is_cooperative,
    }


HELPER_REPLACEMENTS = (
    """\
def _repeating(function):
    values = []

    def repeated(*arguments, **named):
        if not values:
            values.append(function(*arguments, **named))
        return values[0]

    return repeated


{name} = _repeating({name})""",
    "def {name}(*arguments, **named):\n    return [*arguments, *named.values(), None][0]",
    'def {name}(*arguments, **named):\n    raise ValueError("no value")',
)
"""Code that replaces the helper function {name}, to repeat its first value, return the first argument, or raise."""

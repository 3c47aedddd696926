"""Rules of the two programmers' function: what a pair of programs is, and the terms of its reward.

    score = 0.4 [aux is defined and returns something] + 0.6 [main is defined], and if it is
            + 0.5 [both together parse], and if they do
            + 0.5 share of tests passed + 0.5 [all tests passed], and if all passed and main calls aux
            + 0.5 + 1.0 [main is more than a thin wrapper of aux] - 0.5 [what aux returns is ignored]

4.0 at most. A pair that fails a test has less than 2.0, one that solves the task at least 2.1: how a program came about
is worth something only where it works. Terms and maxima are those of CoMLRL's code generation tasks (arXiv:2508.04652,
`published`), which pay for cooperation where one test passes; they are decided on syntax trees here, so that a comment
or a string which looks like code earns nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..extraction import Code, source
from ..syntax import function_named, ignores_result, is_thin_wrapper, needed_statements, returns_value, uses_function
from .problems import HELPER_FUNCTION, Problem

MAX_SCORE = 4.0


@dataclass(frozen=True)
class Pair:
    """The two programs, looked at but not run."""

    aux: str
    """The helper's code as far as `aux` needs it; empty if it wrote none."""
    main: str
    """The main programmer's code as far as its function needs it; empty if it wrote none."""
    is_aux_defined: bool
    is_main_defined: bool
    is_parsed: bool
    """Whether the two parse together."""
    calls_aux: bool
    is_thin_wrapper: bool
    ignores_aux: bool

    @property
    def is_runnable(self) -> bool:
        return self.is_main_defined and self.is_parsed

    def program(self, preamble: str) -> str:
        """What is tested: what the prompt gives, then the helper's code, then the main programmer's."""
        return "\n\n".join(part for part in (preamble, self.aux, self.main) if part) + "\n"


def pair_of(problem: Problem, helper: Code, main: Code) -> Pair:
    """The pair in the two programmers' code.

    Each is taken at its own function and what that needs: the other's function, where somebody wrote that too, and
    examples of use are left out. What does not parse is kept, and keeps the pair from parsing, only if the function
    is not found elsewhere.
    """
    aux_part = needed_statements(helper.statements, HELPER_FUNCTION, foreign={problem.entry_point})
    also = (*problem.functions, *problem.classes)
    main_part = needed_statements(main.statements, problem.entry_point, foreign={HELPER_FUNCTION}, also=also)
    aux_function = function_named(aux_part, HELPER_FUNCTION)
    main_function = function_named(main_part, problem.entry_point)
    aux_text, main_text = source(aux_part), source(main_part)
    is_broken = aux_text is None or main_text is None or bool(not aux_part and helper.broken)
    calls_aux = bool(aux_function and main_function) and uses_function(main_part, HELPER_FUNCTION)
    return Pair(
        aux=(aux_text if aux_part else helper.broken) or "",
        main=(main_text if main_part else main.broken) or "",
        is_aux_defined=aux_function is not None and returns_value(aux_function),
        is_main_defined=main_function is not None,
        is_parsed=main_function is not None and not is_broken,
        calls_aux=calls_aux,
        is_thin_wrapper=main_function is not None and is_thin_wrapper(main_function, HELPER_FUNCTION),
        ignores_aux=calls_aux and ignores_result(main_part, HELPER_FUNCTION),
    )


def terms(pair: Pair, pass_rate: float, *, is_solved: bool) -> dict[str, float]:
    """The parts of the score.

    Args:
        pair: the two programs.
        pass_rate: share of tests passed, 0 to 1; 0 if they were not run.
        is_solved: whether all passed, and the program ran to its end.
    """
    is_cooperative = pair.is_runnable and is_solved and pair.calls_aux
    return {
        "aux_defined": 0.4 * pair.is_aux_defined,
        "main_defined": 0.6 * pair.is_main_defined,
        "parses": 0.5 * pair.is_runnable,
        "tests": (0.5 * pass_rate + 0.5 * is_solved) * pair.is_runnable,
        "calls_aux": 0.5 * is_cooperative,
        "more_than_wrapper": 1.0 * (is_cooperative and not pair.is_thin_wrapper),
        "ignores_aux": 0.0 - 0.5 * (is_cooperative and pair.ignores_aux),
    }

"""Two processes on one GPU: whether gradients that are summed over both are those of one process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

from .results import Part, Row, Setting

MODULE = "collm.algorithms.distribution"


def part() -> Part:
    return Part("ranks", "Two processes on one GPU", measurements)


def measurements(_: Setting) -> Mapping[str, Callable[[], Row]]:
    return {"gradients of two gloo ranks = of one process": _skipped}


def _skipped() -> Row:
    """Raises NotImplementedError once there is something to measure, so that a skip cannot outlive its reason."""
    if importlib.util.find_spec(MODULE) is not None:
        raise NotImplementedError(f"{MODULE} exists, but the plan does not measure it yet")
    return {"outcome": f"skipped: there is no {MODULE}, training knows one process only"}

"""Welfare of a team whose agents have different returns: four functions of the returns r_1, ..., r_N.

    sum           = r_1 + ... + r_N
    minimum       = min_i r_i
    nash_product  = r_1 * ... * r_N
    gini          = sum_i sum_j |r_i - r_j| / (2 N sum_i r_i)

Sources: minimum: Rawls, A Theory of Justice, 1971. Nash product: Nash, The Bargaining Problem, Econometrica 1950, with
the disagreement point 0. Gini coefficient: in the form of arXiv:1707.06600, which reports 1 - gini as equality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def welfare(returns: Sequence[float]) -> dict[str, float]:
    """Compute the welfare measures of the agents' returns, as a dict with the names of the module docstring.

    Args:
        returns: [N], return of each agent.

    Returns:
        Sum and minimum in units of the return, and the Nash product. `gini` is from 0 (equal returns) to 1 - 1/N. The
        last two are defined only for gains: `nash_product` is left out if a return is negative, and `gini` also if all
        returns are 0.
    """
    found = {"sum": math.fsum(returns), "minimum": min(returns)}
    if found["minimum"] >= 0:
        found["nash_product"] = math.prod(returns)
        if found["sum"] > 0:
            values = np.array(returns)
            distances = np.abs(values[:, None] - values[None, :]).sum()
            found["gini"] = float(distances / (2 * len(values) * found["sum"]))
    return found

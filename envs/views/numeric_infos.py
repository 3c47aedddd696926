"""Infos of numbers only, for environments of others: some libraries stack infos into arrays and fail on text."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from .view import View


class NumericInfos(View):
    """Infos without what is neither a number nor an array of numbers. Both spaces: unchanged.

    Args:
        env: any parallel environment.
        agents: whose view it is; None: everybody's.
    """

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in info.items() if _is_numeric(value)}


def _is_numeric(value: Any) -> bool:
    return isinstance(value, (Number, np.bool_)) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")

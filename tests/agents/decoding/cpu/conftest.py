"""Kernels are looked for anew in every test of them."""

import pytest

from collm.agents.decoding.cpu import attention, compiling, layers


@pytest.fixture(autouse=True)
def none_remembered():
    """Each test finds its own compiler and folder."""
    found = compiling.kernels, layers._functions, attention.kernel_for
    for each in found:
        each.cache_clear()
    yield
    for each in found:
        each.cache_clear()

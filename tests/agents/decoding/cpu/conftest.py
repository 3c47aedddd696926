import pytest

from collm.agents.decoding.cpu import kernels


@pytest.fixture(autouse=True)
def no_kernel_is_remembered():
    kernels.kernels.cache_clear()
    yield
    kernels.kernels.cache_clear()

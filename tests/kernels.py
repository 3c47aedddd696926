from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def torch_alone() -> Iterator[None]:
    """Disable collm's CPU kernels, for comparisons with torch, because the kernels round differently."""
    from collm.agents.decoding.cpu import fused_ops

    with mock.patch.object(fused_ops, "kernels", lambda *heads: None):
        yield

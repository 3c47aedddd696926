"""Computing without kernels of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def torch_alone() -> Iterator[None]:
    """Let torch do all, for what is compared to layers that it computes: ours differ by rounding."""
    from collm.agents.decoding.cpu import attention, layers

    with (
        mock.patch.object(attention, "kernel_for", lambda *shape: None),
        mock.patch.object(layers, "_functions", lambda: None),
    ):
        yield

"""A simulated accelerator, for tests on a machine without one.

Tensors on the device `far` are stored in CPU memory. An operation on tensors of two devices fails as on CUDA. Kernel
launches are counted, and each synchronization with its line: reads of values (`.item()`, `.cpu()`, `bool(tensor)`),
shapes that depend on values (`nonzero`, boolean indexing), and copies to the device without `non_blocking=True`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "far"
READS = {f"aten::{name}" for name in ("_local_scalar_dense", "equal", "is_nonzero")}
DEPENDENT = {f"aten::{name}" for name in ("nonzero", "masked_select", "_unique2", "unique_dim")}
INDEXES = {f"aten::{name}" for name in ("index", "index_put", "index_put_", "_index_put_impl_")}
COPIES = {"aten::_to_copy", "aten::to"}
MAKES_NO_KERNEL = {f"aten::{name}" for name in ("detach", "_unsafe_view", "empty", "empty_strided", "empty_like")}


class Seen:
    def __init__(self) -> None:
        self.waits: Counter[tuple[str, str]] = Counter()  # by operation and "file.py:line"
        self.launches: Counter[str] = Counter()  # by operation

    @property
    def num_waits(self) -> int:
        return sum(self.waits.values())

    @property
    def num_launches(self) -> int:
        return sum(self.launches.values())

    def waits_at(self, *files: str) -> int:
        """Return the number of synchronizations that lines of these files caused."""
        return sum(count for (_, line), count in self.waits.items() if line.partition(":")[0] in files)

    def clear(self) -> None:
        self.waits.clear()
        self.launches.clear()


class FarTensor(torch.Tensor):
    """A tensor on `far` whose values are in `near`."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> FarTensor:
        layout = {"strides": near.stride(), "storage_offset": near.storage_offset(), "dtype": near.dtype}
        options = {**layout, "device": f"{NAME}:0", "requires_grad": near.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, near.size(), **options)

    def __init__(self, near: torch.Tensor) -> None:
        self.near = near

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"FarTensor({self.near})"

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


class _BackendModule(backend_registration._DummyBackendModule):
    __name__ = "collm.far.cpu"  # no accelerator outside of `pretended`

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_initialized(self) -> bool:
        return True


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


class _Factories(TorchFunctionMode):
    """Create tensors on the CPU, then move them: `torch.tensor(data, device=...)` bypasses the dispatcher."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and _is_far(kwargs.get("device")):
            del kwargs["device"]
            return function(*args, **kwargs).to(NAME)
        return function(*args, **kwargs)


_seen = Seen()
# At import, because the first backward pass of a process starts a thread per device.
_setup: Any = backend_registration._setup_privateuseone_for_python_backend
_setup(NAME, backend_module=_BackendModule())


@contextmanager
def pretended() -> Iterator[Seen]:
    """Enable the device `far` inside the block. Yields the counters of launches and synchronizations."""
    global _seen
    before, _seen = _seen, Seen()
    try:
        with _Operations(), _Factories():
            yield _seen
    finally:
        _seen = before


def _run(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the near tensors, count its costs, and put the result on the right device."""
    name: str = operation._schema.name
    tensors = [each for value in (*args, *kwargs.values()) for each in _tensors(value)]
    touches_far = any(isinstance(tensor, FarTensor) for tensor in tensors)
    wanted = kwargs.get("device") or next((value for value in args if isinstance(value, torch.device)), None)
    if not touches_far and not _is_far(wanted):
        return operation(*args, **kwargs)
    if not operation.is_view and name not in MAKES_NO_KERNEL:
        _seen.launches[name] += 1
    if name == "aten::copy_":
        return _copied(operation, args, kwargs)
    strangers = touches_far and any(not isinstance(each, FarTensor) and each.dim() > 0 for each in tensors)
    if name in COPIES and wanted is not None:
        if touches_far != _is_far(wanted) and not (kwargs.get("non_blocking") and not touches_far):
            _count("from the device" if touches_far else "to the device, not queued")
    elif name in INDEXES:
        indices = [index for index in args[1] if index is not None]
        if strangers and not all(isinstance(index, FarTensor) for index in indices):
            _count(f"{name} by an index on the host")
        elif strangers:
            _refuse(name)
        if name == "aten::index" and any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            _count(f"{name} by a mask")
    elif strangers:
        _refuse(name)
    has_unknown_sum = name == "aten::repeat_interleave" and kwargs.get("output_size") is None
    if name in READS or (name in DEPENDENT and touches_far) or has_unknown_sum:
        _count(name)
    near_args = tuple(torch.device("cpu") if isinstance(value, torch.device) else value for value in args)
    near_kwargs = {**kwargs, "device": torch.device("cpu")} if kwargs.get("device") is not None else kwargs
    found = operation(*map(_near, near_args), **{key: _near(value) for key, value in near_kwargs.items()})
    if name.endswith("_") and args and isinstance(args[0], torch.Tensor) and not isinstance(found, (tuple, list)):
        return args[0]
    goes_far = _is_far(wanted) if wanted is not None else touches_far
    return _far(found) if goes_far else found


def _copied(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, source, *others = args
    if isinstance(target, FarTensor) != isinstance(source, FarTensor):
        is_queued = others[0] if others else kwargs.get("non_blocking", False)
        if isinstance(source, FarTensor) or not is_queued:
            _count("from the device" if isinstance(source, FarTensor) else "to the device, not queued")
    operation(_near(target), _near(source), *others, **kwargs)
    return target


def _refuse(name: str) -> None:
    raise RuntimeError(f"{name}: expected all tensors to be on the same device, at {_blamed()}")


def _count(operation: str) -> None:
    _seen.waits[operation, _blamed()] += 1


def _blamed() -> str:
    """Return the innermost line of the call stack outside of libraries and of this file."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if "site-packages" not in file and file != __file__ and not file.startswith("<"):
            return f"{file.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for each in value if isinstance(each, torch.Tensor)] if isinstance(value, list | tuple) else []


def _near(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_near(each) for each in value]
    return value.near if isinstance(value, FarTensor) else value


def _far(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_far(each) for each in value)
    return FarTensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, FarTensor) else value


def _is_far(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME

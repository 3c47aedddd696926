"""Serialization of a trainer's state as JSON and tensors. Loading runs no code and imports no classes by name.

A tensor in nested dictionaries is stored under its path (learners/writer_0/policy/…). Tensors in lists and records are
concatenated to one tensor per data type, because there may be thousands of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...agents.core import Completion, CriticInput
from ...agents.encoding import TokenRecord
from ...agents.numeric.moments import RunningMoments
from ...agents.numeric.policy import NumericRecord
from ...envs.core import Message, Transcript
from ..rollout.episode import Cost, Episode, Turn
from ..rollout.plays import Plan
from ..rollout.requests import RolloutRequest
from .critic_learner import ReplayEntry

Record = TypeVar("Record", bound=type)
_KINDS: tuple[type, ...] = (
    Completion,
    Cost,
    CriticInput,
    Episode,
    Message,
    NumericRecord,
    Plan,
    ReplayEntry,
    RolloutRequest,
    RunningMoments,
    TokenRecord,
    Turn,
)
RECORDS = {kind.__name__: kind for kind in _KINDS}
"""Dataclasses and named tuples that a checkpoint may contain, by name."""
_ARRAYS = "arrays/"  # prefix of concatenated arrays, such as observations, which may contain NaN or Inf


def storable(kind: Record) -> Record:
    """Class decorator: allow a dataclass in checkpoints, such as the class of a policy's `Completion.tokens`.

    Raises `TypeError` if the class is not a dataclass, and `ValueError` if another class has the same name.
    """
    if not is_dataclass(kind):
        raise TypeError(f"storable needs a dataclass, but {kind.__name__} is not one; add @dataclass to the class")
    if RECORDS.setdefault(kind.__name__, kind) is not kind:
        raise ValueError(f"another class {kind.__name__!r} is already allowed in checkpoints; rename the new class")
    return kind


@dataclass
class Packed:
    """State of a trainer in the form that checkpoints store: JSON values and tensors."""

    values: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    not_finite: str | None = None
    """Path of the first tensor with NaN or Inf. None: all are finite. Arrays such as observations are not checked."""


def packed(state: Any) -> Packed:
    """Convert a trainer's state to JSON values and tensors. Raises `TypeError` for other types of values."""
    packer = _Packer()
    packer.result.values = {"state": packer.pack(state, ""), "messages": [list(each) for each in packer.messages]}
    for name, arrays in packer.arrays.items():
        packer.result.tensors[name] = torch.from_numpy(np.concatenate(arrays))
    for name, tensors in packer.joined.items():
        packer.result.tensors[name] = torch.cat(tensors)
    return packer.result


def unpacked(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Restore the trainer's state that `packed` converted."""
    messages = [Message(*each) for each in values["messages"]]
    return _Unpacker(tensors, messages).unpack(values["state"])


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor of a packed state that contains NaN or Inf. None: all are finite."""
    named = ((name, tensor) for name, tensor in tensors.items() if not name.startswith(_ARRAYS))
    return next((name for name, tensor in named if not _is_finite(tensor)), None)


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())


class _Packer:
    def __init__(self) -> None:
        self.result = Packed()
        self.messages: dict[Message, int] = {}  # numbered, because successive histories repeat messages
        self.arrays: dict[str, list[NDArray[Any]]] = {}
        self.joined: dict[str, list[Tensor]] = {}
        self._sizes: dict[str, int] = {}
        self._names: dict[tuple[Any, ...], str] = {}  # by address: tied weights are stored once
        self._storages: set[int] = set()

    def pack(self, value: Any, path: str, is_listed: bool = False) -> Any:
        """Convert a value to JSON. Tensors inside a list or record (`is_listed`) are concatenated."""
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, Transcript):
            return {"$transcript": [self.messages.setdefault(each, len(self.messages)) for each in value.messages]}
        if isinstance(value, str):
            return str(value)
        if isinstance(value, np.generic):
            return {"$scalar": self._array(np.asarray(value), path)}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, Tensor):
            return {"$tensor": self._tensor(value.detach(), path, is_listed)}
        if isinstance(value, np.ndarray):
            return {"$array": self._array(value, path)}
        if isinstance(value, Mapping):
            items = [(key, self.pack(item, f"{path}/{key}".lstrip("/"), is_listed)) for key, item in value.items()]
            if all(isinstance(key, str) and not key.startswith("$") for key, _ in items):
                return dict(items)
            return {"$items": [[self.pack(key, path), item] for key, item in items]}
        kind = type(value)
        if RECORDS.get(kind.__name__) is kind:
            names = tuple(each.name for each in fields(kind)) if is_dataclass(kind) else value._fields
            is_number = kind is RunningMoments
            parts = {name: self.pack(getattr(value, name), f"{path}/{name}", not is_number) for name in names}
            return {"$record": kind.__name__, "fields": parts}
        if kind in (list, tuple):
            items = [self.pack(item, f"{path}/{i}", True) for i, item in enumerate(value)]
            return items if kind is list else {"$tuple": items}
        raise TypeError(
            f"{path} in a checkpoint is a {kind.__module__}.{kind.__qualname__}, but must be a number, string, array, "
            "tensor, list, dictionary, or a dataclass with the decorator collm.algorithms.learning.state.storable"
        )

    def _array(self, value: NDArray[Any], path: str) -> list[Any]:
        if value.dtype.kind not in "biuf":
            raise TypeError(f"{path} in a checkpoint is an array of {value.dtype}; store a numeric array instead")
        value = value.astype(value.dtype.newbyteorder("="), copy=False)
        return self._appended(self.arrays, f"{_ARRAYS}{value.dtype}", value.reshape(-1), value.shape)

    def _tensor(self, value: Tensor, path: str, is_listed: bool) -> Any:
        if self.result.not_finite is None and not _is_finite(value):
            self.result.not_finite = path
        if is_listed:
            name = f"joined/{str(value.dtype).removeprefix('torch.')}"
            return self._appended(self.joined, name, value.cpu().reshape(-1), tuple(value.shape))
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if value.numel() and key in self._names:
            return self._names[key]
        kept = value.cpu().contiguous()
        if kept.untyped_storage().data_ptr() in self._storages:  # a view: safetensors stores whole storages
            kept = kept.clone()
        self._storages.add(kept.untyped_storage().data_ptr())
        name = path
        while name in self.result.tensors:
            name += "'"
        self.result.tensors[name] = kept
        self._names[key] = name
        return name

    def _appended(self, pool: dict[str, list[Any]], name: str, flat: Any, shape: tuple[int, ...]) -> list[Any]:
        start = self._sizes.get(name, 0)
        self._sizes[name] = start + len(flat)
        pool.setdefault(name, []).append(flat)
        return [name, start, list(shape)]


class _Unpacker:
    def __init__(self, tensors: Mapping[str, Tensor], messages: list[Message]):
        self._tensors = tensors
        self._messages = messages
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "$transcript": lambda numbers: Transcript(messages[number] for number in numbers),
            "$scalar": lambda where: self._array(where)[()],
            "$float": float,
            "$array": self._array,
            "$tensor": self._tensor,
            "$tuple": lambda items: tuple(map(self.unpack, items)),
            "$items": lambda items: {self.unpack(key): self.unpack(item) for key, item in items},
        }

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$record" in value:
            parts = {name: self.unpack(part) for name, part in value["fields"].items()}
            return RECORDS[value["$record"]](**parts)
        for tag in value:
            if tag in self._kinds:
                return self._kinds[tag](value[tag])
        return {key: self.unpack(item) for key, item in value.items()}

    def _array(self, where: list[Any]) -> NDArray[Any]:
        array: NDArray[Any] = self._cut(where).numpy().copy()
        return array

    def _tensor(self, where: Any) -> Tensor:
        return self._tensors[where] if isinstance(where, str) else self._cut(where).clone()

    def _cut(self, where: list[Any]) -> Tensor:
        name, start, shape = where
        return self._tensors[name][start : start + math.prod(shape)].reshape(shape)

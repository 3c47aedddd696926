"""Simulated CUDA graphs on a CPU: recorded operations are replayed on the same tensors, without Python code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Work = Callable[[], None]


class Eagerly:
    """Simulated graphs whose replay calls the captured function again."""

    def __init__(self) -> None:
        self.num_captured = self.num_replays = self.num_releases = 0

    def warm_up(self, work: Work) -> None:
        work()

    def capture(self, work: Work) -> Work:
        self.num_captured += 1

        def replay() -> None:
            self.num_replays += 1
            work()

        return replay

    def release(self) -> None:
        self.num_releases += 1


class Taped(Eagerly):
    """Simulated graphs whose replay runs a `Tape`. `tapes` lists the captured tapes."""

    def __init__(self) -> None:
        super().__init__()
        self.tapes: list[Tape] = []

    def capture(self, work: Work) -> Work:
        tape = Tape(work)
        self.tapes.append(tape)
        return super().capture(tape.replay)


class Tape:
    """Recorded operations of a function, whose effects are undone and whose intermediate results are overwritten."""

    def __init__(self, work: Work) -> None:
        self.read: list[Tensor] = []  # inputs that no recorded operation created; a replay depends on them
        self._operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []
        self._made: set[int] = set()
        self._undo: list[tuple[Tensor, Tensor]] = []
        with _Recorder(self):
            work()
        for tensor, before in reversed(self._undo):
            tensor.copy_(before)
        self._undo.clear()
        for *_, made in self._operations:
            for tensor in made:
                tensor.fill_(torch.nan if tensor.is_floating_point() else 1)

    def replay(self) -> None:
        for operation, args, kwargs, made in self._operations:
            found = operation(*args, **kwargs)
            for tensor, new in zip(made, _tensors(found) if made else (), strict=True):
                tensor.copy_(new)

    def add(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _tensors((args, kwargs))
        places = {place_of(tensor) for tensor in given}
        self.read += [tensor for tensor in given if place_of(tensor) not in self._made]
        written = [
            value
            for argument, value in zip(operation._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self._undo += [(tensor, tensor.clone()) for tensor in written if place_of(tensor) not in self._made]
        found = operation(*args, **kwargs)
        results = _tensors(found)
        made = [tensor for tensor in results if place_of(tensor) not in places]
        assert made in ([], results), operation  # all views of inputs, or all new
        self._made |= {place_of(tensor) for tensor in made}
        if made or written:
            self._operations.append((operation, args, kwargs, made))
        return found


class _Recorder(TorchDispatchMode):
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._tape.add(operation, args, kwargs or {})


def place_of(tensor: Tensor) -> int:
    """Return the address of the tensor's storage."""
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]

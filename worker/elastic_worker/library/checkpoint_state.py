"""Takes a nested state apart into named tensors and a pickle of everything else, and puts it together again.

DCP wants a flat dict with string keys; an optimizer's state has integer keys, tuples, None. The pickle keeps every
type as it is and holds a name where a tensor was. A name is the path to the tensor: `model/layer.weight`,
`optimizer/state/#0/exp_avg` (`#` before keys that are no strings, and before places in lists).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from elastic_worker.library import checkpoint_values

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # before torch 2.5
    from torch.distributed._tensor import DTensor

Tensors = dict[str, Any]
"""Name -> tensor."""


class CheckpointStateError(Exception):
    """The state cannot be saved or put together again; the message names the path of the value."""


def is_sharded(tensor: Any) -> bool:
    """Whether this process holds only a part of the tensor."""
    return isinstance(tensor, DTensor)


def tensors_of(state: Any) -> Tensors:
    """Tensors in nested dicts, lists and tuples by name; two names may share memory. Raises CheckpointStateError."""
    tensors: Tensors = {}
    for name, tensor in _walk(state, ()):
        if name in tensors:
            raise CheckpointStateError(
                f"two tensors of the state have the name {name}: use keys that print differently"
            )
        tensors[name] = tensor
    return tensors


def take_apart(state: Any) -> tuple[Tensors, bytes]:
    """All tensors by name, and the pickle of the rest. Raises CheckpointStateError, as for values without a pickle."""
    tensors = tensors_of(state)
    stream = io.BytesIO()
    try:
        _Pickler(stream, tensors).dump(state)
    except Exception as error:
        raise CheckpointStateError(f"{_culprit(state)} cannot be pickled: {error}") from error
    return tensors, stream.getvalue()


def put_together(structure: bytes, tensors: Mapping[str, Any]) -> Any:
    """The state with these tensors. Raises CheckpointStateError."""
    try:
        return _Unpickler(io.BytesIO(structure), tensors.__getitem__).load()
    except checkpoint_values.UnknownNameError as error:
        raise CheckpointStateError(str(error)) from error
    except Exception as error:
        raise CheckpointStateError(f"its values cannot be read: {error!r}") from error


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if _is_ours(value):
        yield "/".join(path), value
    else:
        for key, child in _children(value):
            yield from _walk(child, (*path, key))


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield _part(key) if isinstance(key, str) else f"#{_part(repr(key))}", child
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            yield f"#{index}", child


def _part(key: str) -> str:
    """Path element of a key; no two keys give the same one."""
    return key.replace("~", "~0").replace("/", "~1").replace("#", "~2")


def _is_ours(value: Any) -> bool:
    """Whether to store the tensor by name; sparse and quantized ones and foreign subclasses pickle themselves."""
    if isinstance(value, DTensor):
        return True
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
    )


def _culprit(state: Any) -> str:
    """The path of the deepest value that cannot be pickled alone."""
    path, deeper = "state", True
    while deeper:
        deeper = False
        for key, child in _children(state):
            if not _can_be_pickled(child):
                path, state, deeper = f"{path}/{key}", child, True
                break
    return f"{path} ({type(state).__name__})"


def _can_be_pickled(value: Any) -> bool:
    try:
        _Pickler(io.BytesIO(), {}).dump(value)
    except Exception:  # noqa: BLE001  # the value's class may raise anything
        return False
    return True


class _Pickler(pickle.Pickler):
    """A pickler that also gives names to tensors inside other objects."""

    def __init__(self, stream: io.BytesIO, tensors: Tensors) -> None:
        super().__init__(stream, protocol=5)
        self._tensors = tensors
        self._names = {id(tensor): name for name, tensor in tensors.items()}

    def reducer_override(self, value: Any) -> Any:
        """Refuse to save an object that could not be loaded."""
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            checkpoint_values.check(str(value.__module__), value.__qualname__)
        if isinstance(value, Enum):
            return type(value), (value.value,)  # older Pythons would write getattr, which returns any attribute
        return NotImplemented

    def persistent_id(self, value: Any) -> str | None:
        if not _is_ours(value):
            return None
        if id(value) not in self._names:
            name = f"#object/#{len(self._names)}"
            self._names[id(value)], self._tensors[name] = name, value
        return self._names[id(value)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, tensor: Callable[[str], Any]) -> None:
        super().__init__(stream)
        self._tensor = tensor

    def find_class(self, module: str, name: str) -> Any:
        return checkpoint_values.find(module, name)

    def persistent_load(self, name: str) -> Any:
        return self._tensor(name)

"""A state taken apart for a hand-over: its structure with all plain values, and its tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

FAILED = -1
"""Sent instead of the structure's length if `capture` failed."""
ALONE_BYTES = 2**20
"""Tensors of at least this size are sent without a copy."""


@dataclass(frozen=True)
class _Place:
    """The place of a tensor in the structure."""

    number: int


@dataclass
class _Parcel:
    """`tensors` are those of the state, each once, as (shape, dtype, whether it is sent as it lies on the device)."""

    structure: Any
    tensors: list[tuple[Any, Any, bool]] = field(default_factory=list)


def pack(state: Any, *, device_sends: bool) -> tuple[_Parcel, list[Any]]:
    """Take the state apart; returns the parcel and its tensors. With `device_sends` a GPU's are sent from the GPU."""
    tensors: list[Any] = []
    numbers: dict[Any, int] = {}

    def place(value: Any) -> Any:
        if not is_plain_tensor(value):
            return value
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else id(value)
        if key not in numbers:
            numbers[key] = len(tensors)
            tensors.append(value.detach())
        return _Place(numbers[key])

    structure = put(state, place)
    parcel = _Parcel(structure, [(t.shape, t.dtype, device_sends and t.is_cuda) for t in tensors])
    return parcel, tensors


def is_plain_tensor(value: Any) -> bool:
    """Whether the value is a plain tensor. Other kinds (sparse, quantized, subclasses) are pickled."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
    )


def put(value: Any, function: Callable[[Any], Any]) -> Any:
    """Map `function` over the leaves of nested dicts, lists and tuples."""
    if isinstance(value, dict):
        made = {key: put(item, function) for key, item in value.items()}
        return made if type(value) is dict else _like(value, made)
    if type(value) in (list, tuple):
        return type(value)(put(item, function) for item in value)
    return function(value)


def _like(original: Any, items: dict[Any, Any]) -> Any:
    """A dict with these items, of the original's kind: OrderedDict and defaultdict stay what they are."""
    made = original.copy()
    made.update(items)
    return made


def bytes_of(tensor: Any, *, direct: bool) -> Any:
    """Contiguous bytes of the tensor, on the host unless `direct`; a view if the tensor is contiguous."""
    resolved = tensor.resolve_conj().resolve_neg()
    return (resolved if direct else resolved.cpu()).reshape(-1).contiguous().view(torch.uint8)


def not_captured(source: int) -> RuntimeError:
    """The error for ranks that wait for the state."""
    return RuntimeError(f"rank {source}, which has the newest state, could not capture it: its own log says why")


# Earlier releases pickle these classes under the following names.
for _each in (_Place, _Parcel):
    _each.__module__ = "elastic_worker.library.handover"

"""The state of a surviving rank, sent to the ranks that have none or an older one.

All ranks of a new group say what they have; the lowest rank among those with the highest step is the source. Its state
goes to all ranks by broadcast: first the structure with all plain values, pickled, then the bytes of the tensors,
large ones as they lie, small ones together.
"""

from __future__ import annotations

import ctypes
import io
import logging
import pickle
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from elastic_worker.library import groups
from elastic_worker.library.forming import NCCL

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 2**20
ALONE_BYTES = 2**20
"""A tensor of this size is sent without a copy."""
ALIGNMENT = 16
"""So that a part of a buffer can be seen as any dtype."""
SAMPLE_BYTES = 16
FAILED = -1


@dataclass(frozen=True)
class HandOver:
    """`source` is None if no rank has any state. `bytes` were sent to each rank, 0 if all had the same."""

    step: int
    source: int | None
    received: bool
    bytes: int
    seconds: float


def hand_over(
    formed: Formed,
    *,
    capture: Callable[[], Any],
    apply: Callable[[Any], None],
    have: bool,
    step: int,
    mark: int,
) -> HandOver:
    """Called by all ranks of the installed group. `mark` is the checksum of this rank's state, see `mark_of`.

    `capture` gives nested dicts, lists and tuples of tensors and plain values; `apply` gets the same with tensors of
    its own, on the host unless NCCL brought them. Raises RuntimeError on all ranks if `capture` raised on the source.
    """
    began = time.monotonic()
    all_have = _gather(formed, [int(have), step, mark])
    source = _source(all_have)
    if source is None:
        return HandOver(step, None, False, 0, time.monotonic() - began)
    best = all_have[source]
    needing = [rank for rank, one in enumerate(all_have) if one != best]
    _warn_of_other_marks(all_have, source)
    count, received = 0, formed.rank in needing
    if formed.rank == source and needing:
        count = _send(formed, source, capture)
    elif needing:
        count, state = _receive(formed, source)
        if received:
            apply(state)
    return HandOver(best[1], source, received, count, time.monotonic() - began)


def mark_of(tensors: Iterable[Any]) -> int:
    """A checksum of a few bytes of each tensor: tells states apart that have trained apart, and costs microseconds."""
    mark = 0
    for tensor in tensors:
        mark = zlib.crc32(_sample(tensor), mark)
    return mark


def _sample(tensor: Any) -> bytes:
    """From the middle and from the end; of a tensor with gaps, or on a device, the last element."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return b""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        last = tensor.detach()[(-1,) * tensor.dim()]
        return bytes(last.reshape(1).view(torch.uint8).tolist())
    start, length = tensor.data_ptr(), min(SAMPLE_BYTES, size)
    return ctypes.string_at(start + (size - length) // 2, length) + ctypes.string_at(start + size - length, length)


# -- who sends ---------------------------------------------------------------------------------------------------------


def gather_objects(formed: Formed, own: Any) -> list[Any]:
    """What each rank has given, by rank: anything that can be pickled and is small. Raises GroupError's kin."""
    packed = pickle.dumps(own)
    sizes = [size for (size,) in _gather(formed, [len(packed)])]
    padded = packed.ljust(max(sizes), b"\0")
    rows = _gather(formed, list(padded))
    return [pickle.loads(bytes(row[:size])) for row, size in zip(rows, sizes)]


def _gather(formed: Formed, numbers: list[int]) -> list[list[int]]:
    own = torch.tensor(numbers, dtype=torch.int64, device=groups.control_device(formed))
    everybodys = [torch.empty_like(own) for _ in range(formed.world)]
    formed.calls.wait(dist.all_gather(everybodys, own, group=formed.group, async_op=True))
    return [tensor.tolist() for tensor in everybodys]


def _source(all_have: list[list[int]]) -> int | None:
    candidates = [(-step, rank) for rank, (have, step, _mark) in enumerate(all_have) if have]
    return min(candidates)[1] if candidates else None


def _warn_of_other_marks(all_have: list[list[int]], source: int) -> None:
    best = all_have[source]
    others = [rank for rank, one in enumerate(all_have) if one[:2] == best[:2] and one[2] != best[2]]
    if others:
        log.warning(
            "step %d: ranks %s have another state than rank %d, and take over its state", best[1], others, source
        )


# -- the structure -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A tensor in the structure."""

    number: int


@dataclass
class _Parcel:
    """`tensors` are those of the state, each once, as (shape, dtype, whether it is sent as it lies on the device)."""

    structure: Any
    tensors: list[tuple[Any, Any, bool]] = field(default_factory=list)


def _pack(state: Any, *, device_sends: bool) -> tuple[_Parcel, list[Any]]:
    tensors: list[Any] = []
    numbers: dict[Any, int] = {}

    def place(value: Any) -> Any:
        if not _is_plain_tensor(value):
            return value
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else id(value)
        if key not in numbers:
            numbers[key] = len(tensors)
            tensors.append(value.detach())
        return _Place(numbers[key])

    structure = _map(state, place)
    parcel = _Parcel(structure, [(t.shape, t.dtype, device_sends and t.is_cuda) for t in tensors])
    return parcel, tensors


def _is_plain_tensor(value: Any) -> bool:
    """Other kinds (sparse, quantized, subclasses) are pickled."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
    )


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        made = {key: _map(one, function) for key, one in value.items()}
        return made if type(value) is dict else _like(value, made)
    if type(value) in (list, tuple):
        return type(value)(_map(one, function) for one in value)
    return function(value)


def _like(original: Any, items: dict[Any, Any]) -> Any:
    """An OrderedDict or defaultdict keeps its kind."""
    made = original.copy()
    made.update(items)
    return made


# -- the way -----------------------------------------------------------------------------------------------------------


def _send(formed: Formed, source: int, capture: Callable[[], Any]) -> int:
    try:
        parcel, tensors = _pack(capture(), device_sends=formed.backend == NCCL)
        structure = pickle.dumps(parcel, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        _broadcast_numbers(formed, source, [FAILED])
        raise
    _broadcast_numbers(formed, source, [len(structure)])
    _broadcast(formed, source, torch.frombuffer(bytearray(structure), dtype=torch.uint8))
    count = len(structure)
    for buffer, parts in _buffers([_bytes_of(t, direct) for t, (_, _, direct) in zip(tensors, parcel.tensors)]):
        for part, view in parts:
            view.copy_(part)
        count += buffer.numel()
        _broadcast(formed, source, buffer)
    return count


def _receive(formed: Formed, source: int) -> tuple[int, Any]:
    length = _broadcast_numbers(formed, source, [0])[0]
    if length == FAILED:
        raise RuntimeError(f"rank {source}, which has the newest state, could not capture it: its own log tells why")
    pickled = torch.empty(length, dtype=torch.uint8)
    _broadcast(formed, source, pickled)
    parcel = pickle.load(io.BytesIO(pickled.numpy().tobytes()))  # from a rank of this job
    tensors = [
        torch.empty(shape, dtype=dtype, device="cuda" if direct else "cpu") for shape, dtype, direct in parcel.tensors
    ]
    count = length
    for buffer, parts in _buffers([_bytes_of(t, True) for t in tensors]):
        _broadcast(formed, source, buffer)
        count += buffer.numel()
        for part, view in parts:
            part.copy_(view)
    return count, _map(parcel.structure, lambda value: tensors[value.number] if isinstance(value, _Place) else value)


def _bytes_of(tensor: Any, direct: bool) -> Any:
    """Its bytes in a row, on the host unless `direct`; a view of it where it lies in a row."""
    resolved = tensor.resolve_conj().resolve_neg()
    return (resolved if direct else resolved.cpu()).reshape(-1).view(torch.uint8)


def _buffers(rows: list[Any]) -> Iterable[tuple[Any, list[tuple[Any, Any]]]]:
    """What to broadcast, in one order on all ranks: a buffer, and (bytes of a tensor, their view in the buffer)."""
    small = [row for row in rows if 0 < row.numel() < ALONE_BYTES]
    for row in rows:
        if row.numel() >= ALONE_BYTES:
            for start in range(0, row.numel(), CHUNK_BYTES):
                yield row[start : start + CHUNK_BYTES], []
    for kind in ("cpu", "cuda"):
        yield from _together([row for row in small if row.device.type == kind])


def _together(rows: list[Any]) -> Iterable[tuple[Any, list[tuple[Any, Any]]]]:
    batch: list[tuple[Any, int]] = []
    end = 0
    for row in rows:
        if end + row.numel() > CHUNK_BYTES:
            yield _buffer(batch, end)
            batch, end = [], 0
        batch.append((row, end))
        end += -(-row.numel() // ALIGNMENT) * ALIGNMENT
    if batch:
        yield _buffer(batch, end)


def _buffer(batch: list[tuple[Any, int]], size: int) -> tuple[Any, list[tuple[Any, Any]]]:
    buffer = torch.zeros(size, dtype=torch.uint8, device=batch[0][0].device)
    return buffer, [(row, buffer[start : start + row.numel()]) for row, start in batch]


def _broadcast_numbers(formed: Formed, source: int, numbers: list[int]) -> list[int]:
    tensor = torch.tensor(numbers, dtype=torch.int64, device=groups.control_device(formed))
    formed.calls.wait(dist.broadcast(tensor, source, group=formed.group, async_op=True))
    return [int(number) for number in tensor.tolist()]


def _broadcast(formed: Formed, source: int, row: Any) -> None:
    """A host tensor goes through the device where the group has no gloo."""
    if row.is_cuda or groups.control_device(formed).type == "cpu":
        formed.calls.wait(dist.broadcast(row, source, group=formed.group, async_op=True))
        return
    moved = row.to(groups.control_device(formed))
    formed.calls.wait(dist.broadcast(moved, source, group=formed.group, async_op=True))
    row.copy_(moved)

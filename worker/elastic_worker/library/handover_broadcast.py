"""A hand-over by broadcast: all ranks call this, and ranks that need nothing drop the data."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from elastic_worker.library import groups
from elastic_worker.library.forming import NCCL
from elastic_worker.library.handover_parcel import ALONE_BYTES, FAILED, _Place, bytes_of, not_captured, pack, put

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

CHUNK_BYTES = 64 * 2**20
ALIGNMENT = 16
"""Alignment in bytes at which a part of a buffer can be viewed as any dtype."""


def send(formed: Formed, source: int, capture: Callable[[], Any]) -> tuple[int, None]:
    """Send from the source; returns the number of bytes. Raises the errors of `capture`."""
    try:
        parcel, tensors = pack(capture(), device_sends=formed.backend == NCCL)
        structure = pickle.dumps(parcel, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        _broadcast_numbers(formed, source, [FAILED])
        raise
    _broadcast_numbers(formed, source, [len(structure)])
    _broadcast(formed, source, torch.frombuffer(bytearray(structure), dtype=torch.uint8))
    count = len(structure)
    for buffer, parts in _buffers([bytes_of(t, direct=direct) for t, (_, _, direct) in zip(tensors, parcel.tensors)]):
        for part, view in parts:
            view.copy_(part)
        count += buffer.numel()
        _broadcast(formed, source, buffer)
    return count, None


def receive(formed: Formed, source: int) -> tuple[int, Any]:
    """Receive on all other ranks: the number of bytes and the state. Raises RuntimeError if `capture` failed."""
    length = _broadcast_numbers(formed, source, [0])[0]
    if length == FAILED:
        raise not_captured(source)
    pickled = torch.empty(length, dtype=torch.uint8)
    _broadcast(formed, source, pickled)
    parcel = pickle.load(io.BytesIO(pickled.numpy().tobytes()))  # from a rank of this job
    tensors = [
        torch.empty(shape, dtype=dtype, device="cuda" if direct else "cpu") for shape, dtype, direct in parcel.tensors
    ]
    count = length
    for buffer, parts in _buffers([bytes_of(t, direct=True) for t in tensors]):
        _broadcast(formed, source, buffer)
        count += buffer.numel()
        for part, view in parts:
            part.copy_(view)
    return count, put(parcel.structure, lambda value: tensors[value.number] if isinstance(value, _Place) else value)


def _buffers(rows: list[Any]) -> Iterable[tuple[Any, list[tuple[Any, Any]]]]:
    """Yield the buffers to broadcast, in the same order on all ranks, each with pairs (tensor's bytes, view in it)."""
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
    """Broadcast a tensor. One on the host goes through the device if the group has no gloo."""
    if row.is_cuda or groups.control_device(formed).type == "cpu":
        formed.calls.wait(dist.broadcast(row, source, group=formed.group, async_op=True))
        return
    moved = row.to(groups.control_device(formed))
    formed.calls.wait(dist.broadcast(moved, source, group=formed.group, async_op=True))
    row.copy_(moved)

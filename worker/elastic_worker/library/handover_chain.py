"""A hand-over along a chain of ranks: the first rank sends, the others receive and forward."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import torch

from elastic_worker.library.chain import PIECE_BYTES, Chain
from elastic_worker.library.handover_parcel import (
    ALONE_BYTES,
    FAILED,
    _Parcel,
    _Place,
    bytes_of,
    is_plain_tensor,
    not_captured,
    pack,
    put,
)


def send_along(chain: Chain, capture: Callable[[], Any]) -> None:
    """Send from the first rank. Raises the errors of `capture`."""
    try:
        parcel, tensors = pack(capture(), device_sends=False)
        structure = pickle.dumps(parcel, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        chain.number(FAILED)
        chain.end()
        raise
    chain.number(len(structure))
    for piece in torch.frombuffer(bytearray(structure), dtype=torch.uint8).split(PIECE_BYTES):
        chain.pass_on(piece)
    for batch in _batches(parcel):
        if len(batch) == 1:
            for piece in _row(tensors[batch[0]]).split(PIECE_BYTES):
                chain.pass_on(piece.cpu())
        else:
            chain.pass_on(torch.cat([_row(tensors[number]).cpu() for number in batch]))
    chain.end()


def receive_along(chain: Chain, source: int, existing: Any) -> Any:
    """Receive the state, into tensors of `existing` if they fit. Raises RuntimeError if `capture` failed."""
    length = chain.number()
    if length == FAILED:
        chain.end()
        raise not_captured(source)
    pickled = torch.empty(length, dtype=torch.uint8)
    for piece in pickled.split(PIECE_BYTES):
        chain.pass_on(piece)
    parcel = pickle.load(io.BytesIO(pickled.numpy().tobytes()))  # from a rank of this job
    tensors = _targets(parcel, existing)
    for batch in _batches(parcel):
        _receive(chain, [_row(tensors[number]) for number in batch])
    chain.end()
    return put(parcel.structure, lambda value: tensors[value.number] if isinstance(value, _Place) else value)


def _receive(chain: Chain, rows: list[Any]) -> None:
    """Receive the tensors one by one, small ones together."""
    if len(rows) == 1:
        for piece in rows[0].split(PIECE_BYTES):
            received = piece if piece.device.type == "cpu" else torch.empty(piece.shape, dtype=torch.uint8)
            chain.pass_on(received)
            if received is not piece:
                piece.copy_(received)
        return
    sizes = [row.numel() for row in rows]
    together = torch.empty(sum(sizes), dtype=torch.uint8)
    chain.pass_on(together)
    for row, part in zip(rows, together.split(sizes)):
        row.copy_(part)


def _row(tensor: Any) -> Any:
    """Bytes of the tensor on its own device; a view if it is contiguous."""
    return bytes_of(tensor, direct=True)


def _batches(parcel: _Parcel) -> Iterable[list[int]]:
    """Indices of the tensors in the order of sending, grouped by message."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype, _ in parcel.tensors]
    batch: list[int] = []
    end = 0
    for number, size in enumerate(sizes):
        if size >= ALONE_BYTES:
            yield [number]
        elif size:
            if end + size > PIECE_BYTES:
                yield batch
                batch, end = [], 0
            batch.append(number)
            end += size
    if batch:
        yield batch


def _targets(parcel: _Parcel, existing: Any) -> list[Any]:
    """Per index: the tensor at the same place of `existing` if shape and dtype fit, else a new one."""
    existing_tensors: dict[int, Any] = {}
    _find(parcel.structure, existing, existing_tensors)
    tensors = []
    for number, (shape, dtype, _) in enumerate(parcel.tensors):
        target = existing_tensors.get(number)
        if target is None or target.shape != shape or target.dtype != dtype or not target.is_contiguous():
            target = torch.empty(shape, dtype=dtype)
        tensors.append(target.detach())
    return tensors


def _find(structure: Any, existing: Any, tensors: dict[int, Any]) -> None:
    if isinstance(structure, _Place):
        if is_plain_tensor(existing) and not (existing.is_inference() or existing.is_conj() or existing.is_neg()):
            tensors.setdefault(structure.number, existing)
    elif isinstance(structure, dict) and isinstance(existing, dict):
        for key in structure.keys() & existing.keys():
            _find(structure[key], existing[key], tensors)
    elif type(structure) in (list, tuple) and type(existing) is type(structure):
        for item, value in zip(structure, existing):
            _find(item, value, tensors)

"""Sends the state of a surviving rank to the ranks that have none or an older one.

All ranks of a new group announce their step; the lowest rank among those with the highest step is the source. The
state is sent along a chain of the ranks that need it: first the pickled structure with all plain values, then the bytes
of the tensors in pieces, large ones without a copy, small ones together. A receiver that has a contiguous tensor of the
same kind in its model or optimizer receives into that.

With NCCL, or if a pod's release has no chain, the state is broadcast to all ranks instead.
"""

from __future__ import annotations

import ctypes
import logging
import pickle
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from elastic_worker.library import groups, handover_broadcast, releases
from elastic_worker.library.chain import Chain
from elastic_worker.library.forming import NCCL
from elastic_worker.library.handover_chain import receive_along, send_along
from elastic_worker.library.handover_parcel import _Parcel, _Place  # noqa: F401 (pods of earlier releases look here)

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

log = logging.getLogger(__name__)

SAMPLE_BYTES = 16


@dataclass(frozen=True)
class HandOver:
    """The result of a hand-over on this rank.

    `source` is the rank that sent the state, None if no rank has any; `bytes` is the number sent or received here.
    """

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
    existing: Callable[[], Any] = dict,
    have: bool,
    step: int,
    mark: int,
) -> HandOver:
    """Hand the state over; all ranks of the installed group call this. `mark` is the checksum from `mark_of`.

    `capture` gives nested dicts, lists and tuples of tensors and plain values; `existing` gives the part of them whose
    tensors may be overwritten. `apply` gets the received state. Its tensors are new ones on the host (with NCCL: on the
    device), or those of `existing`, which are overwritten. From then until `apply` returns, this rank has no state. A
    rank that needs nothing does not wait. Raises RuntimeError on source and receivers if `capture` raised on the
    source.
    """
    began = time.monotonic()
    releases.announce(formed)
    all_have = _gather(formed, [int(have), step, mark])
    source = _source(all_have)
    if source is None:
        return HandOver(step, None, False, 0, time.monotonic() - began)
    best = all_have[source]
    needing = [rank for rank, announced in enumerate(all_have) if announced != best]
    _warn_of_other_marks(all_have, source)
    count, received = 0, formed.rank in needing
    chained = bool(needing) and formed.backend != NCCL and releases.all_know(formed, releases.CHAIN)
    if chained and (received or formed.rank == source):
        chain = Chain(formed, [source, *needing])
        if received:
            apply(receive_along(chain, source, existing()))
        else:
            send_along(chain, capture)
        count = chain.bytes
    elif needing and not chained:
        count, state = _broadcast(formed, source, capture)
        if received:
            apply(state)
    return HandOver(best[1], source, received, count, time.monotonic() - began)


def mark_of(tensors: Iterable[Any]) -> int:
    """Checksum of a few bytes of each tensor: differs for states that were trained apart, and costs microseconds."""
    mark = 0
    for tensor in tensors:
        mark = zlib.crc32(_sample(tensor), mark)
    return mark


def _sample(tensor: Any) -> bytes:
    """Bytes from the middle and the end; of a strided tensor, or one on a device, the last element."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return b""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        element = tensor.detach()[(-1,) * tensor.dim()]
        return bytes(element.reshape(1).view(torch.uint8).tolist())
    start, length = tensor.data_ptr(), min(SAMPLE_BYTES, size)
    return ctypes.string_at(start + (size - length) // 2, length) + ctypes.string_at(start + size - length, length)


# -- the source --------------------------------------------------------------------------------------------------------


def gather_objects(formed: Formed, value: Any) -> list[Any]:
    """Gather a small picklable object from each rank, by rank. Raises the errors of torch's collectives."""
    packed = pickle.dumps(value)
    sizes = [size for (size,) in _gather(formed, [len(packed)])]
    padded = packed.ljust(max(sizes), b"\0")
    rows = _gather(formed, list(padded))
    return [pickle.loads(bytes(row[:size])) for row, size in zip(rows, sizes)]


def _gather(formed: Formed, numbers: list[int]) -> list[list[int]]:
    row = torch.tensor(numbers, dtype=torch.int64, device=groups.control_device(formed))
    everybodys = [torch.empty_like(row) for _ in range(formed.world)]
    formed.calls.wait(dist.all_gather(everybodys, row, group=formed.group, async_op=True))
    return [tensor.tolist() for tensor in everybodys]


def _source(all_have: list[list[int]]) -> int | None:
    candidates = [(-step, rank) for rank, (have, step, _mark) in enumerate(all_have) if have]
    return min(candidates)[1] if candidates else None


def _warn_of_other_marks(all_have: list[list[int]], source: int) -> None:
    best = all_have[source]
    unlike = [rank for rank, announced in enumerate(all_have) if announced[:2] == best[:2] and announced[2] != best[2]]
    if unlike:
        log.warning(
            "step %d: ranks %s have another state than rank %d, and take over its state", best[1], unlike, source
        )


def _broadcast(formed: Formed, source: int, capture: Callable[[], Any]) -> tuple[int, Any]:
    if formed.rank == source:
        return handover_broadcast.send(formed, source, capture)
    return handover_broadcast.receive(formed, source)

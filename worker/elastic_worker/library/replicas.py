"""Whether all ranks have the same weights, as they must: one number of each rank, compared every so many steps."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from elastic_worker import contract
from elastic_worker.library.handover import gather_objects
from elastic_worker.library.seeds import stable_hash

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

WORD_BYTES = 8
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DivergedError(RuntimeError):
    """Ranks that should be replicas have other weights; the message says which, and since when at most."""


def fingerprint(tensors: Iterable[torch.Tensor]) -> int:
    """63 bits; another number if a single bit of one tensor is another. Reads all of them once, where they lie."""
    sums = [_sum_of_bits(tensor) for tensor in tensors if tensor.numel()]
    if not sums:
        return 0
    together = torch.stack([each.to(sums[0].device) for each in sums])
    return stable_hash("weights", *together.tolist())


def compare(formed: Formed, own: int, *, step: int, every: int) -> None:
    """Called by all ranks of the installed group. Raises DivergedError on all of them if one has another fingerprint.

    Those that differ from most ranks are named, and their pods; where none is in the majority, those that differ from
    the lowest rank.
    """
    name = os.environ.get(contract.ENV_POD_NAME) or socket.gethostname()
    told = gather_objects(formed, (own, name))
    found = [mark for mark, _ in told]
    usual = Counter(found).most_common(1)[0][0]  # of several, the one that was met first
    others = [rank for rank, mark in enumerate(found) if mark != usual]
    if not others:
        return
    pods = ", ".join(dict.fromkeys(told[rank][1] for rank in others))
    usuals = [rank for rank, mark in enumerate(found) if mark == usual]
    raise DivergedError(
        f"step {step}: {_ranks(others)} ({pods}) has other weights than {_ranks(usuals)}, sometime since step "
        f"{step - every}. Parameters were changed beside the optimizers, or by what differs between ranks, or a "
        "machine computes wrong. If its ranks cannot be bit for bit alike, as on processors of several kinds, use "
        "elastic.init(compare_every=0)"
    )


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    """As whole numbers, modulo 2 ** 64: it does not depend on the order in which a device adds up."""
    bits = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    size = bits.element_size()
    if bits.numel() * size % WORD_BYTES:
        return bits.view(INTEGERS[size]).sum(dtype=torch.int64)
    row = bits.reshape(-1)
    is_in_line = row.is_contiguous() and not row.storage_offset() * size % WORD_BYTES
    return (row if is_in_line else row.clone()).view(torch.int64).sum()


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

"""Checks that all ranks have the same weights: their fingerprints are compared every few steps."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import torch
from torch import distributed as dist

from elastic_worker import contract
from elastic_worker.library.seeds import stable_hash

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

READ_SECONDS = 2.0
"""Time after which a rank that found a difference ends, even if the others have not read it yet."""
WORD_BYTES = 8
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DivergedError(RuntimeError):
    """Ranks that should be replicas differ in weights; the message names them and the last step at which all agreed."""


def fingerprint(tensors: Iterable[torch.Tensor]) -> int:
    """A hash of 63 bits that changes if a single bit of a tensor changes. Reads each tensor once, on its device."""
    sums = [_sum_of_bits(tensor) for tensor in tensors if tensor.numel()]
    if not sums:
        return 0
    together = torch.stack([each.to(sums[0].device) for each in sums])
    return stable_hash("weights", *together.tolist())


class Comparison:
    """Compares one rank with all others of its group every `every` steps (0: never).

    Ranks publish their fingerprints in the group's store and read at the next comparison what all published at the last
    one. So no rank waits, and a rank of a release without this does no harm, while a collective that only some ranks
    call would hang (102).
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._published: tuple[str, int, int] | None = None

    def is_due(self, step: int) -> bool:
        """Whether ranks are compared after that step."""
        return bool(self._every) and step % self._every == 0

    def compare(self, formed: Formed, fingerprint: int, *, step: int) -> None:
        """Compare; all ranks of the installed group call this. Raises DivergedError on all of them if one differs.

        The error names the ranks, and their pods, that differ from the most frequent fingerprint; on a tie, from the
        lowest rank's.
        """
        previous, self._published = self._published, (formed.name, step, fingerprint)
        with suppress(dist.DistError):  # the store has ended: the next step finds out why
            _publish(formed, step, fingerprint)
            if previous is not None and previous[:2] == (formed.name, step - self._every):
                self._read(formed, previous[1], previous[2])

    def _read(self, formed: Formed, step: int, fingerprint: int) -> None:
        store = formed.store
        count = store.add(f"replicas/{step}/ranks", 0)
        alike = store.add(f"replicas/{step}/sum", 0) == formed.world * _part(fingerprint)
        if count == formed.world and not alike:
            marks = [json.loads(store.get(f"replicas/{step}/{rank}")) for rank in range(formed.world)]
            _wait_for_readers(formed, step)
            raise DivergedError(_difference(marks, step=step, every=self._every))
        store.delete_key(f"replicas/{step}/{formed.rank}")
        if formed.rank == 0:  # all ranks have read these, as they have done steps together since
            for key in ("ranks", "sum"):
                store.delete_key(f"replicas/{step - self._every}/{key}")


def _publish(formed: Formed, step: int, fingerprint: int) -> None:
    name = os.environ.get(contract.ENV_POD_NAME) or socket.gethostname()
    formed.store.set(f"replicas/{step}/{formed.rank}", json.dumps((fingerprint, name)))
    formed.store.add(f"replicas/{step}/sum", _part(fingerprint))
    formed.store.add(f"replicas/{step}/ranks", 1)


def _wait_for_readers(formed: Formed, step: int) -> None:
    """Wait until the other ranks have read, since this process may be the one that serves the store."""
    end = time.monotonic() + READ_SECONDS
    with suppress(dist.DistError):  # the server has ended, and this rank has read what it needs
        readers = formed.store.add(f"replicas/{step}/seen", 1)
        while readers < formed.world and time.monotonic() < end:
            time.sleep(0.01)
            readers = formed.store.add(f"replicas/{step}/seen", 0)


def _part(mark: int) -> int:
    """40 bits of a fingerprint, so that the sum over all ranks fits 64 bits."""
    return mark >> 23


def _difference(marks: list[tuple[int, str]], *, step: int, every: int) -> str:
    fingerprints = [mark for mark, _ in marks]
    usual = Counter(fingerprints).most_common(1)[0][0]  # on a tie, the fingerprint of the lowest rank
    deviating = [rank for rank, mark in enumerate(fingerprints) if mark != usual]
    pods = ", ".join(dict.fromkeys(marks[rank][1] for rank in deviating))
    usuals = [rank for rank, mark in enumerate(fingerprints) if mark == usual]
    return (
        f"step {step}: {_ranks(deviating)} ({pods}) has other weights than {_ranks(usuals)}, sometime since step "
        f"{step - every}. Possible causes: code that changes parameters outside of an optimizer, values that differ "
        "between ranks, or a faulty machine. If the ranks cannot be bit for bit alike, as on processors of several "
        "kinds, or on CPUs with other numbers of threads, use elastic.init(compare_every=0)"
    )


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Sum of the bits as integers modulo 2 ** 64, which does not depend on the order of a device's additions."""
    bits = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    size = bits.element_size()
    if bits.numel() * size % WORD_BYTES:
        return bits.view(INTEGERS[size]).sum(dtype=torch.int64)
    row = bits.reshape(-1)
    is_in_line = row.is_contiguous() and not row.storage_offset() * size % WORD_BYTES
    return (row if is_in_line else row.clone()).view(torch.int64).sum()


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

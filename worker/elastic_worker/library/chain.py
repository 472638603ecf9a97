"""Sends bytes along a chain of ranks: the first rank has them, and each rank passes them on to the next one.

Each rank sends once, whatever the number of ranks, and ranks outside of the chain take no part. The bytes are sent in
pieces: while a rank receives a piece, it sends the previous piece to the next rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

PIECE_BYTES = 16 * 2**20
"""The largest piece. Each piece costs a rank some 0.2 ms more than its bytes; each further rank lags by one piece."""
UNDER_WAY = 2
"""Number of pieces that are sent at the same time, and kept in memory meanwhile."""
TAG = 1


class Chain:
    """A chain of these ranks of the group; this process is one of them. All of them make the same calls."""

    def __init__(self, formed: Formed, ranks: Sequence[int]) -> None:
        at = ranks.index(formed.rank)
        self._formed = formed
        self._previous = ranks[at - 1] if at else None
        self._next = ranks[at + 1] if at + 1 < len(ranks) else None
        self._sent: deque[Callable[[], None]] = deque()
        self.bytes = 0
        """Number of bytes of all pieces so far."""

    def pass_on(self, piece: Any) -> None:
        """Pass on a one-dimensional tensor of bytes on the host: the first rank's is sent, the others' are filled.

        Do not write to it before `end`. Raises gloo's errors, and GivenUpError if the group was aborted.
        """
        self.bytes += piece.numel()
        if self._previous is not None:
            self._formed.calls.follow(self._formed.group.recv([piece], self._previous, TAG))()
        if self._next is not None:
            self._sent.append(self._formed.calls.follow(self._formed.group.send([piece], self._next, TAG)))
            if len(self._sent) >= UNDER_WAY:
                self._sent.popleft()()

    def number(self, value: int = 0) -> int:
        """Pass on an integer; returns the first rank's."""
        row = torch.tensor([value], dtype=torch.int64)
        self.pass_on(row.view(torch.uint8))
        return int(row.item())

    def end(self) -> None:
        """Wait until all pieces have been sent."""
        while self._sent:
            self._sent.popleft()()

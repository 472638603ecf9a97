"""Bytes that go from rank to rank: from the first one, which has them, to the next, and on to the one after it.

So each rank sends once, whatever their number, and those that are not in the chain have nothing to do with it. Bytes
go in pieces: while a rank receives one, the one before is on its way to the next rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

PIECE_BYTES = 16 * 2**20
"""At most. Each costs a rank some 0.2 ms beside the time for its bytes, and each further rank is one piece later."""
UNDER_WAY = 2
"""So many pieces are sent at once, and kept meanwhile."""
TAG = 1


class Chain:
    """Of these ranks of the group, of which this process is one. All of them make the same calls."""

    def __init__(self, formed: Formed, ranks: Sequence[int]) -> None:
        at = ranks.index(formed.rank)
        self._formed = formed
        self._before = ranks[at - 1] if at else None
        self._after = ranks[at + 1] if at + 1 < len(ranks) else None
        self._sent: deque[Callable[[], None]] = deque()
        self.bytes = 0
        """Of all pieces so far."""

    def pass_on(self, piece: Any) -> None:
        """A row of bytes on the host: the first rank's is sent, the others' is filled and sent on.

        Nobody may write to it before `end`. Raises what gloo does, GivenUpError where the group was aborted.
        """
        self.bytes += piece.numel()
        if self._before is not None:
            self._formed.calls.follow(self._formed.group.recv([piece], self._before, TAG))()
        if self._after is not None:
            self._sent.append(self._formed.calls.follow(self._formed.group.send([piece], self._after, TAG)))
            if len(self._sent) >= UNDER_WAY:
                self._sent.popleft()()

    def number(self, value: int = 0) -> int:
        """The first rank's."""
        row = torch.tensor([value], dtype=torch.int64)
        self.pass_on(row.view(torch.uint8))
        return int(row.item())

    def end(self) -> None:
        """All that was passed on has been sent."""
        while self._sent:
            self._sent.popleft()()

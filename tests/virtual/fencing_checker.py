"""Checks each request that a replica sends: only the holder of the lease writes.

The check that no node is promised twice runs on a cluster at rest (see `history`). Before that, a pod may be pinned to
a node for a moment while the previous pod there terminates.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.kit.requests import Request, is_a_write
from tests.simulate.api import LEASES
from tests.simulate.server import Server

if TYPE_CHECKING:
    from tests.virtual.replica import Replica


class FencingChecker:
    """Checks all requests of the replicas."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: str = ""
        """The first violation, "" for none. `ProcessWorld.check` raises it; the sender of the request does not."""

    def watch(self, replica: Replica) -> None:
        """Check the requests of this replica, too."""
        replica.line.sent = partial(self._sent, replica)

    def holder(self) -> str:
        """The holder of the lease."""
        leases = self.server.all(LEASES)
        return leases[0]["spec"].get("holderIdentity") or "" if leases else ""

    def _sent(self, replica: Replica, request: Request) -> None:
        """A replica sends a write only while it holds the lease."""
        if not is_a_write(request) or replica.line.dead:
            return
        holder, who = self.holder(), replica.process.elector.identity if replica.process else ""
        if holder != who and not self.seen:
            self.seen = f"{replica.name} sends {request} while {holder or 'nobody'} holds the lease"

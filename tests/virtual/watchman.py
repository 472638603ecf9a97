"""What must hold at any moment, whatever happens: looked at with each request that is sent.

That nodes are not promised twice is judged when the cluster rests (see `history`): for a moment a pod may be pinned to
where another one is on its way out, and waits there as long.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.kit.requests import Request, is_a_write
from tests.simulate.api import LEASES
from tests.simulate.server import Server

if TYPE_CHECKING:
    from tests.virtual.replica import Replica


class Watchman:
    """Looks at all that replicas send."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: str = ""
        """The first thing that must not be; told when the world is looked at, not to who sent it."""

    def watch(self, replica: Replica) -> None:
        """This one, too."""
        replica.line.sent = partial(self._sent, replica)

    def holder(self) -> str:
        """Who holds the lease."""
        leases = self.server.all(LEASES)
        return leases[0]["spec"].get("holderIdentity") or "" if leases else ""

    def _sent(self, replica: Replica, request: Request) -> None:
        """Nobody sends a write after another one has taken the lease, and before it has it itself."""
        if not is_a_write(request) or replica.line.dead:
            return
        holder, who = self.holder(), replica.process.elector.identity if replica.process else ""
        if holder != who and not self.seen:
            self.seen = f"{replica.name} sends {request} while {holder or 'nobody'} holds the lease"

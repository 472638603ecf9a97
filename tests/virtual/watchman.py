"""What must hold at any moment, whatever happens: looked at with each request, when it is sent and when it is done."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulate import server as kinds
from tests.simulate.api import LEASES, Request
from tests.simulate.facts import GPU, allocatable, ended, gpus_of, name_of, node_of, owner_of, place_of
from tests.simulate.server import Body, Server
from tests.virtual.replica import is_a_write

if TYPE_CHECKING:
    from tests.virtual.replica import Replica


JUST_NOW_SECONDS = 2.0


class Watchman:
    """Looks at all that replicas send, and at all that changes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._made_at: dict[str, float] = {}
        self.seen: str = ""
        """The first thing that must not be."""
        server.listeners.append(self._changed)

    def watch(self, replica: Replica) -> None:
        """This one, too."""
        replica.line.sent = partial(self._sent, replica)

    def holder(self) -> str:
        """Who holds the lease."""
        leases = self.server.all(LEASES)
        return leases[0]["spec"].get("holderIdentity") or "" if leases else ""

    def _sent(self, replica: Replica, request: Request) -> None:
        """Nobody sends a write after another one has taken the lease; and before it has it itself."""
        if is_a_write(request) and not replica.line.dead:
            holder, who = self.holder(), replica.process.elector.identity if replica.process else ""
            self._require(holder == who, f"{replica.name} sends {request} while {holder or 'nobody'} holds the lease")

    def _require(self, holds: bool, otherwise: str) -> None:
        """Told when the world is looked at: whoever sent it must not hear of it."""
        if not holds:
            self.seen = self.seen or otherwise

    def _changed(self, plural: str, old: Body | None, new: Body | None) -> None:
        if plural != kinds.PODS or old is not None or new is None or owner_of(new) is None:
            return
        self._made_at[new["metadata"]["uid"]] = self.server.moments.monotonic()
        self._no_gpu_twice(place_of(new), new)

    def _no_gpu_twice(self, place: str, made: Body) -> None:
        """No pod is made for a node that is full of our own. Those of just now may be on their way out already: what
        is not bound is gone at once when it is deleted, and the scheduler may have been faster.
        """
        node: Any = self.server.find(kinds.NODES, "", place)
        if node is None:
            return
        pods = [pod for pod in self.server.all(kinds.PODS) if owner_of(pod) and not ended(pod)]
        since = self.server.moments.monotonic() - JUST_NOW_SECONDS
        known = [pod for pod in pods if self._made_at[pod["metadata"]["uid"]] < since and node_of(pod) == place]
        here = [made, *known]
        asked, has = sum(map(gpus_of, here)), allocatable(node).get(GPU, 0)
        told = sorted(map(name_of, here))
        self._require(asked <= has, f"{name_of(made)} is made on {place}, which has {has} GPUs for {told}")

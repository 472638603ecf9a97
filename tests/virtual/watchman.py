"""What must hold at any moment, whatever happens: looked at with each request, when it is sent and when it is done."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from elastic_worker.contract import LABEL_INCARNATION
from tests.simulate import server as kinds
from tests.simulate.api import LEASES, Request
from tests.simulate.facts import GPU, allocatable, ended, gpus_of, name_of, owner_of, place_of
from tests.simulate.server import Body, Server
from tests.virtual.replica import is_a_write

if TYPE_CHECKING:
    from tests.virtual.replica import Replica


class Watchman:
    """Looks at all that replicas send, and at all that changes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.created: Counter[tuple[str, str, str]] = Counter()
        """How often each pod (job's uid, incarnation, name) came."""
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
        labels = new["metadata"].get("labels", {})
        self.created[owner_of(new)["uid"], labels.get(LABEL_INCARNATION, ""), name_of(new)] += 1
        self._no_gpu_twice(place_of(new), new)

    def _no_gpu_twice(self, place: str, made: Body) -> None:
        """The operator's own pods never ask for more of a node than it has."""
        node: Any = self.server.find(kinds.NODES, "", place)
        if node is None:
            return
        here = [
            pod for pod in self.server.all(kinds.PODS) if owner_of(pod) and place_of(pod) == place and not ended(pod)
        ]
        asked, has = sum(map(gpus_of, here)), allocatable(node).get(GPU, 0)
        told = sorted(map(name_of, here))
        self._require(asked <= has, f"{name_of(made)} is made on {place}, which has {has} GPUs for {told}")

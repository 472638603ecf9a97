"""The operator that leads, as a process of its node: who it is, whether it leads, its end by SIGKILL.

The kubelet starts the container again, and that goes on under the lease of the one before it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from tests.cluster import processes
from tests.cluster.lab import OPERATOR_NAMESPACE, Lab, Object, wait

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases"
LEASE = "elastic-operator"
LEASE_PATH = f"{LEASES}/{LEASE}"


class Leader:
    """Whoever holds the lease. `killed_at` are the times of its ends, in epoch seconds."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.killed_at: list[float] = []
        self._last_renewal = ""

    def kill(self, pid: int) -> None:
        """SIGKILL; the process is gone afterwards."""
        process = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            self.killed_at.append(time.time())
            select.select([process], [], [])
        finally:
            os.close(process)
        self._last_renewal = self._lease()["renewTime"]

    def wait_until_there(self) -> int:
        """Until the process exists, which need not lead yet; returns its pid."""
        pid = wait("a process of the operator", self._pid, report=self.lab.operator_log)
        assert pid is not None
        return pid

    def wait_until_leads(self) -> None:
        """Until the lease was renewed since the last kill."""
        wait("the operator to lead", lambda: self._lease()["renewTime"] != self._last_renewal)

    def restarts(self) -> Counter[str]:
        """How often the kubelet has started containers of the operator again, by pod."""
        return Counter(
            {
                pod["metadata"]["name"]: container["restartCount"]
                for pod in self.pods()
                for container in pod["status"].get("containerStatuses", [])
            }
        )

    def pods(self) -> list[Object]:
        """All replicas."""
        return self.lab.pods(OPERATOR_NAMESPACE)

    def leases(self) -> list[Object]:
        """All leases beside it."""
        items: list[Object] = self.lab.get(LEASES)["items"]
        return items

    def _lease(self) -> Object:
        spec: Object = self.lab.get(LEASE_PATH)["spec"]
        return spec

    def _pid(self) -> int | None:
        holder = {holder_of(self._lease())}
        return next((pid for pid in processes.of_operators(self.lab.cluster) if processes.is_of(pid, holder)), None)


def holders(leases: Iterable[Object]) -> list[str]:
    """Who held the lease, of what became of all leases one after the other; "" where it was given back."""
    mine = [lease["spec"].get("holderIdentity", "") for lease in leases if lease["metadata"]["name"] == LEASE]
    return [holder for holder, _ in groupby(mine)]


def holder_of(lease: Object) -> str:
    """The uid of the pod that the lease's spec names."""
    return str(lease["holderIdentity"]).rpartition("_")[2]

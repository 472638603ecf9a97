"""The operator's processes as this machine sees them: which there are, what they hold, how they are stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from devcluster import cgroups
from devcluster.cluster import Cluster
from tests.cluster.leader import PROGRAM
from tests.soak.weight import Weight


def operators(cluster: Cluster) -> Iterator[int]:
    """Their pids."""
    for node in cluster.settings.node_names():
        for pid in cgroups.pids(cluster.layout.cgroup(node)):
            with contextlib.suppress(OSError):
                if PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield pid


def weights(cluster: Cluster, seconds: float, *, leader: str) -> list[Weight]:
    """What each of them holds now, `seconds` after the begin; the pod with the uid `leader` has the lease."""
    found = []
    for pid in operators(cluster):
        with contextlib.suppress(OSError):
            files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
            leads = bool(leader) and leader in Path(f"/proc/{pid}/cgroup").read_text()
            found.append(Weight(round(seconds, 1), str(pid), _megabytes(pid), files, leads))
    return found


def _megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
    if not kilobytes:
        raise ProcessLookupError(pid)
    return round(kilobytes[0] / 1000, 2)

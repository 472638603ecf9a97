"""What the operator's processes hold, as this machine sees them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from devcluster.cluster import Cluster
from tests.cluster import processes
from tests.soak.weight import Weight


def weights(cluster: Cluster, seconds: float, *, leader: str) -> list[Weight]:
    """What each of them holds now, `seconds` after the begin; the pod with the uid `leader` has the lease."""
    found = []
    for pid in processes.of_operators(cluster):
        with contextlib.suppress(OSError):
            files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
            leads = bool(leader) and processes.is_of(pid, {leader})
            found.append(Weight(round(seconds, 1), str(pid), _megabytes(pid), files, leads))
    return found


def _megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
    if not kilobytes:
        raise ProcessLookupError(pid)
    return round(kilobytes[0] / 1000, 2)

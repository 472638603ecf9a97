"""Processes in containers, as this machine sees them below the nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Set
from pathlib import Path

from devcluster import cgroups
from devcluster.cluster import Cluster

OPERATOR = b"elastic-operator"


def of_pods(cluster: Cluster, uids: Set[str]) -> list[int]:
    """The pids of all processes of the pods with these uids."""
    return [pid for pid in _of_nodes(cluster) if is_of(pid, uids)]


def of_operators(cluster: Cluster) -> list[int]:
    """The pids of the operator's processes, one of each replica that runs."""
    return [pid for pid in _of_nodes(cluster) if _is_operator(pid)]


def is_of(pid: int, uids: Set[str]) -> bool:
    """Whether the process belongs to a pod with one of these uids."""
    with contextlib.suppress(OSError):
        cgroup = Path(f"/proc/{pid}/cgroup").read_text()
        return any(uid in cgroup for uid in uids)
    return False


def _of_nodes(cluster: Cluster) -> list[int]:
    return [pid for node in cluster.settings.node_names() for pid in cgroups.pids(cluster.layout.cgroup(node))]


def _is_operator(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return OPERATOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False

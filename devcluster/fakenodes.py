"""Nodes that are objects only, simulated by KWOK, in any number, without kubelets and containers.

    cluster = Cluster.up(name="many", nodes=0)
    names = cluster.add_fake_nodes(125, gpus=8)          # k1 ... k125; returns when they are Ready
    cluster.add_fake_nodes(2, prefix="spare", labels={"pool": "spare"})
    cluster.part("kwok").freeze()                        # they are all lost; thaw() brings them back

They can be used with real nodes or without. A pod that is bound to such a node (by the scheduler, or by its nodeName)
is Running and Ready at once; a deleted one is removed at once, whatever its grace period. Pods run until they are
deleted: none ends or fails by itself, and none has a log. Real pods, the operator's included, must be kept away from
these nodes: they have no taint, but the label type=kwok.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devcluster import binaries, control_plane, names, network, node, pki, processes
from devcluster.api import Api, wait_until
from devcluster.errors import DevclusterError
from devcluster.names import Layout
from devcluster.progress import Progress

PART = f"{network.CONTROL_PLANE}/kwok"
ANNOTATION = "kwok.x-k8s.io/node"
POD_CIDR = "10.245.0.0/16"
# A lease is renewed after a quarter of its duration, so the controller manager, which waits for 12 s, may miss one.
LEASE_SECONDS = 20
# For clusters whose controller manager waits longer: a lease is renewed every 10 s, as by kubelets.
KUBELETS_LEASE_SECONDS = 40
READY_SECONDS = 120.0
PARALLEL_REQUESTS = 8
OWN = Path(__file__).parent / "tools" / "kwok"
CAPACITY = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110"}


def add(
    api: Api,
    layout: Layout,
    *,
    count: int,
    gpus: int,
    prefix: str,
    labels: Mapping[str, str],
    lease_seconds: int,
    progress: Progress,
) -> list[str]:
    """Add PREFIX1 ... PREFIXcount, and return their names when all are Ready. Existing nodes stay unchanged.

    `lease_seconds` is how long a node's lease lasts; the first call decides for all.
    """
    added = [f"{prefix}{number}" for number in range(1, count + 1)]
    if names.NODE_RULE.fullmatch(f"{prefix}1"):
        raise DevclusterError(f"prefix={prefix!r} is that of real nodes: write another, such as k")
    start(layout, progress, lease_seconds=lease_seconds)
    with progress.step(f"adding {count} fake nodes of {gpus} GPUs"), ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(lambda name: api.create("/api/v1/nodes", _node(name, gpus=gpus, labels=labels)), added))
        wait_until(
            lambda: set(added) <= node.ready_nodes(api, gpus=gpus),
            seconds=READY_SECONDS,
            what=f"{count} fake nodes to be Ready",
            explain=lambda: processes.last_words(layout.logs / f"{PART.replace('/', '-')}.log"),
        )
    return added


def start(layout: Layout, progress: Progress, *, lease_seconds: int = LEASE_SECONDS) -> None:
    """Start kwok, unless it already runs; build it if it is missing."""
    folder = binaries.ensure_module(binaries.KWOK, progress)
    kubeconfig = control_plane.kubeconfig_of(layout, "kwok")
    if not kubeconfig.exists():
        authority = pki.pair(layout.pki, "ca")
        client = pki.issue(authority, layout.pki, "kwok", common_name="kwok", organization="system:masters")
        control_plane.write_kubeconfig(layout, "kwok", client)
    command = _command(folder, kubeconfig, lease_seconds)
    processes.start(layout, PART, command, inside=network.anchor(layout, network.CONTROL_PLANE))


def _command(folder: Path, kubeconfig: Path, lease_seconds: int) -> list[str]:
    stages = (folder / Path(file).name for file in binaries.KWOK.files)
    configs = [OWN / "options.yaml", *stages, OWN / "pod-delete.yaml"]
    return [
        str(folder / "kwok"),
        f"--kubeconfig={kubeconfig}",
        *(f"--config={config}" for config in configs),
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--node-lease-duration-seconds={lease_seconds}",
        f"--cidr={POD_CIDR}",
    ]


def _node(name: str, *, gpus: int, labels: Mapping[str, str]) -> dict[str, Any]:
    own = {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    capacity = {**CAPACITY, node.GPU: str(gpus)} if gpus else CAPACITY
    return {
        "metadata": {"name": name, "annotations": {ANNOTATION: "fake"}, "labels": {**own, **labels}},
        "status": {"capacity": capacity, "allocatable": capacity},
    }

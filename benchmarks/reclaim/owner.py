"""Reclaim as its owner sees it: a pod is created, a victim that trains makes room, and the pod's container runs.

Kubelets and training are real, with one job for each way to train: this is the quota demo, with an owner that returns
repeatedly. The other figures of this benchmark are of thousands of simulated pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.table import Table

from demo import install, quota
from demo.reclaims import Reclaim, TakenBack
from demo.stage import Way
from devcluster import cluster as clusters
from devcluster.progress import Progress

PARTS: dict[str, Callable[[Reclaim], float | None]] = {
    "victim told": lambda one: one.evicted_after,
    "room is free": lambda one: one.freed_after,
    "bound": lambda one: one.bound_after,
    "running": lambda one: one.running_after,
}


@dataclass(frozen=True, slots=True)
class Owner:
    """The reclaims from each victim."""

    taken_back: Mapping[Way, TakenBack]

    def summary(self) -> dict[str, float]:
        """The figures of the last line: seconds from created to running, by how the victim trains."""
        found = {}
        for way, taken in self.taken_back.items():
            for name, share in (("p50", 0.5), ("p95", 0.95)):
                found[f"owner_{way.lower()}_{name}_s"] = round(taken.running_after(share), 3)
        return found

    def table(self) -> Table:
        """A table of the parts of the time, and of the evicted GPUs."""
        title = "From created to running on real kubelets, where two workers of a job that trains make room"
        table = Table(title=title, title_justify="left")
        table.add_column("victim")
        for column in (*PARTS, "p95", "pods", "evicted / requested GPUs"):
            table.add_column(column, justify="right")
        for way, taken in self.taken_back.items():
            medians = (f"{taken.after(0.5, seconds):.2f} s" for seconds in PARTS.values())
            evicted = f"{taken.evicted_gpus} / {taken.requested_gpus}"
            table.add_row(way, *medians, f"{taken.running_after(0.95):.2f} s", str(len(taken.reclaims)), evicted)
        table.caption = "Seconds since the pod was created, medians; p95 is of running."
        return table


def measure(name: str, *, rounds: int, keep: bool, progress: Progress) -> Owner:
    """Measure each victim in turn, in a cluster of that name, which is taken down unless it is to be kept."""
    taken_back = {}
    try:
        cluster, kube = install.local_cluster(name=name, nodes=quota.NODES, gpus=quota.GPUS, progress=progress)
        install.install_operator(kube, progress)
        for way in Way:
            with progress.step(f"a job that trains ({way}) makes room, {rounds} times"):
                quiet = Console(file=StringIO(), width=140)
                told = quota.run(cluster, kube, quiet, way=way, rounds=rounds, losing_a_node=False)
                taken_back[way] = told.taken_back
    finally:
        if not keep:
            clusters.take_down(name, progress=progress)
    return Owner(taken_back)

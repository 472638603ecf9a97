"""Nodes are read once in each refresh, and nothing that is read later marks a job."""

from __future__ import annotations

from typing import Any

from elastic_api.pod_names import parse_pod_name
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.store import Store
from elastic_operator.memory import DirtyJobs, DirtySet
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.nodes import Nodes
from tests.cluster_unit.build import JOB_UID, node, owner, pod, stored_job

NOW = 1_800_000_000.0
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
PINNED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]
    }
}


class World:
    """A node, and a pod of a job that is pinned to it and that kube-scheduler refuses."""

    def __init__(self) -> None:
        jobs = {JOB_UID: stored_job("toy", namespace="a")}
        self.stored: Store[objects.Node] = Store()
        self.dirty_jobs: DirtyJobs = DirtySet()
        self.ledger = Ledger(job_of=jobs.get, parse=parse_pod_name, dirty_jobs=self.dirty_jobs)
        self.nodes = Nodes(self.stored, self.ledger, FirstSeen(ServerClock()), Quarantine(), ["nvidia.com/gpu"])
        self.stored.observe(node("n1"))
        spec = {"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": PINNED}}
        waiting = pod("toy-worker-0", phase="Pending", owners=(owner(),), spec=spec, status={"conditions": [REFUSED]})
        self.ledger.pod_changed(None, waiting)

    def misplaced(self) -> dict[str, str]:
        return self.nodes.misplaced(self.ledger.own_pods(JOB_UID))

    def marked(self) -> Any:
        """The marked jobs; none of them is marked after that."""
        return self.dirty_jobs.take()


def test_a_changed_node_marks_jobs_that_it_refused_at_the_refresh_whoever_reads_it_before() -> None:
    world = World()
    world.nodes.refresh(NOW)
    world.marked()
    meta = {"name": "n1", "uid": "uid-n1", "resourceVersion": "2"}
    world.stored.observe(node("n1", metadata=meta, spec={"unschedulable": True}))
    assert (world.misplaced(), world.marked()) == ({}, set())
    world.nodes.refresh(NOW)
    assert list(world.misplaced()) == ["uid-toy-worker-0"]
    assert world.marked() == {JOB_UID}
    world.nodes.refresh(NOW)
    assert world.marked() == set()

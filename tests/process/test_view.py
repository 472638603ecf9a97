"""A look that remembers sees what a look at everything anew sees, whatever happened in between."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.build import names
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.errors import Unreachable
from elastic_operator.cluster.ledger import JobRef, Ledger
from elastic_operator.cluster.store import Store
from elastic_operator.loop.backoff import Troubles
from elastic_operator.loop.logs import FailureLogs
from elastic_operator.loop.read import Reader, Stores
from elastic_operator.loop.status_times import StatusTimes
from elastic_operator.loop.view import Sight, View
from elastic_operator.settings import Settings
from tests.api.jobs import make_job, make_template, with_gpus
from tests.cluster_unit.build import node, owner, pod

START = 1_800_000_000.0
STARTED = "2027-01-15T08:00:00Z"
GPU = "nvidia.com/gpu"
JOBS = ("first", "second")


class World:
    """Stores that things happen to, with a view on them that remembers."""

    def __init__(self) -> None:
        self.stores = Stores(*(Store() for _ in range(8)))
        self.now, self.revision = START, 100
        self.ledger = Ledger(job_of=self._job_of, parse=names.parse_pod_name, now=lambda: self.now)
        self.stores.jobs.subscribe(lambda old, new: self.ledger.job_changed((new or old).metadata.uid))
        self.stores.pods.subscribe(self.ledger.pod_changed)
        self.troubles = Troubles()
        self.view = self.new_view()

    def new_view(self) -> View:
        clock = ServerClock()
        reader = Reader(self.stores, self.ledger, Settings(), clock=clock, times=StatusTimes(lambda: clock.stepped))
        return View(reader, FailureLogs(None, lambda _: "pytorch", lambda: None), self.troubles)

    def look(self) -> Sight:
        return self.view.look(self.now)

    def _job_of(self, uid: str) -> JobRef | None:
        job = self.stores.jobs.get(uid)
        return JobRef(job.metadata.namespace, job.metadata.name) if job else None

    def _next(self) -> str:
        self.revision += 1
        return str(self.revision)

    # -- what happens ------------------------------------------------------------------------------------------------

    def job(self, name: str, most: int, status: dict[str, Any], claim: str) -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
        body = make_job(name, maxReplicas=most, template=make_template(with_gpus(1), volumes=volumes))
        known = self.stores.jobs.get(f"uid-{name}")
        body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": self._next(), "creationTimestamp": STARTED}
        body["metadata"]["generation"] = known.metadata.generation + 1 if known else 1
        self.stores.jobs.observe(objects.decode(body | {"status": status}, objects.CustomObject))

    def job_goes(self, name: str) -> None:
        self.stores.jobs.observe_deleted(f"uid-{name}", self._next())

    def pod(self, job: str, place: str, where: str, phase: str, deleting: bool, ours: bool) -> None:
        meta = {"labels": {"elastic-pytorch.dev/incarnation": "1"}}
        if deleting:
            meta |= {"deletionTimestamp": STARTED, "deletionGracePeriodSeconds": 30}
        scheduled = {"type": "PodScheduled", "status": "True" if where else "False", "lastTransitionTime": STARTED}
        self.stores.pods.observe(
            pod(
                f"{job}-{place}",
                namespace="default",
                rv=int(self._next()),
                node=where,
                gpus=1,
                phase=phase,
                owners=(owner(f"uid-{job}", name=job),) if ours else (),
                status={"conditions": [scheduled]},
                **meta,
            )
        )

    def pod_goes(self, job: str, place: str) -> None:
        self.stores.pods.observe_deleted(f"uid-{job}-{place}", self._next())

    def node(self, name: str, gpus: int, ready: bool, cordoned: bool, since: float | None = None) -> None:
        written = datetime.fromtimestamp(since or self.now, UTC).isoformat()
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": written}
        body = node(name, gpus=gpus, spec={"unschedulable": cordoned})
        status = msgspec.convert(
            {"allocatable": {GPU: str(gpus), "cpu": "8", "pods": "110"}, "conditions": [condition]}, objects.NodeStatus
        )
        meta = msgspec.structs.replace(body.metadata, resource_version=self._next())
        self.stores.nodes.observe(msgspec.structs.replace(body, metadata=meta, status=status))

    def node_goes(self, name: str) -> None:
        self.stores.nodes.observe_deleted(f"uid-{name}", self._next())

    def creation(self, job: str, place: str, where: str) -> None:
        role, _, index = place.partition("-")
        uid, name = f"uid-{job}", f"{job}-{place}"
        self.ledger.assume(
            job_uid=uid,
            namespace="default",
            name=name,
            role=role,
            index=int(index),
            node=where or None,
            requests={GPU: 1},
        )

    def creation_fails(self, job: str, place: str) -> None:
        self.ledger.forget("default", f"{job}-{place}")

    def trouble(self, job: str) -> None:
        seen = self.look().seen.get(f"uid-{job}")
        if seen is not None:
            self.troubles.add(seen.job, Unreachable("no answer in time"), self.now)

    def trouble_ends(self, job: str) -> None:
        self.troubles.clear(f"uid-{job}")

    def claim(self, name: str, bound: bool) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": self._next()}
        body = {"metadata": meta, "spec": {"volumeName": "v"}, "status": {"phase": "Bound" if bound else "Pending"}}
        self.stores.claims.observe(objects.decode(body, objects.PersistentVolumeClaim))

    def time_passes(self, seconds: float) -> None:
        self.now += seconds


STATUSES = (
    {},
    {"incarnation": 1, "targetReplicas": 2, "replicas": 2, "startTime": STARTED},
    {
        "incarnation": 1,
        "targetReplicas": 1,
        "replicas": 1,
        "startTime": STARTED,
        "runningSince": STARTED,
        "failures": 1,
    },
    {
        "incarnation": 1,
        "targetReplicas": 1,
        "replicas": 1,
        "retry": {"reason": "x", "notBefore": "2027-01-15T08:01:00Z", "attempt": 1, "size": 2},
    },
    {"incarnation": 2, "targetReplicas": 0, "replicas": 0},
)
jobs, places = st.sampled_from(JOBS), st.sampled_from(("master-0", "worker-0", "worker-1"))
nodes, where = st.sampled_from(("n1", "n2")), st.sampled_from(("", "n1", "n2"))
phases, flags = st.sampled_from(("Pending", "Running", "Succeeded", "Failed")), st.booleans()
happenings = st.one_of(
    st.tuples(st.just("job"), jobs, st.integers(1, 4), st.sampled_from(STATUSES), st.sampled_from(("", "c1"))),
    st.tuples(st.just("job_goes"), jobs),
    st.tuples(st.just("pod"), jobs, places, where, phases, flags, flags),
    st.tuples(st.just("pod_goes"), jobs, places),
    st.tuples(st.just("node"), nodes, st.integers(0, 4), flags, flags),
    st.tuples(st.just("node_goes"), nodes),
    st.tuples(st.just("creation"), jobs, places, where),
    st.tuples(st.just("creation_fails"), jobs, places),
    st.tuples(st.just("trouble"), jobs),
    st.tuples(st.just("trouble_ends"), jobs),
    st.tuples(st.just("claim"), st.just("c1"), flags),
    st.tuples(st.just("time_passes"), st.sampled_from((1.0, 15.0, 61.0, 700.0))),
)


@given(st.lists(happenings, max_size=30))
def test_a_look_that_remembers_sees_what_a_fresh_look_sees(history):
    world = World()
    for name, where in zip(JOBS, ("n1", "n2"), strict=True):
        world.node(where, 4, True, False)
        world.job(name, 3, STATUSES[2], "")
        world.pod(name, "master-0", where, "Running", False, True)
    for what, *how in history:
        getattr(world, what)(*how)
        remembered, fresh = world.look(), world.new_view().look(world.now)
        assert remembered.seen == fresh.seen
        assert by_name(remembered.snapshot.jobs) == by_name(fresh.snapshot.jobs)
        assert by_name(remembered.snapshot.nodes) == by_name(fresh.snapshot.nodes)


def test_what_nothing_changed_of_is_the_same_object_as_before():
    world = World()
    world.node("n1", 4, True, False)
    world.job("first", 3, {}, "")
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n1", "Running", False, True)
    before = world.look()
    world.node("n1", 4, True, False)
    world.pod("notebook", "x", "", "Running", False, False)
    world.time_passes(1.0)
    after = world.look()
    assert after.snapshot is before.snapshot
    assert after.seen["uid-second"] is before.seen["uid-second"]
    world.pod_goes("second", "master-0")
    assert world.look().snapshot is not before.snapshot


def by_name(things):
    return {thing.name: thing for thing in things}


def test_a_node_seen_to_turn_not_ready_has_not_been_away_for_long_whatever_clock_that_was_written_by():
    world = World()
    world.node("n1", 4, True, False)
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n1", "Running", False, True)
    world.time_passes(3600.0)
    world.look()
    world.node("n1", 4, False, False, since=START)
    assert world.look().seen["uid-second"].lost_nodes == frozenset()
    world.time_passes(39.0)
    assert world.look().seen["uid-second"].lost_nodes == frozenset()
    world.time_passes(1.0)
    assert world.look().seen["uid-second"].lost_nodes == {"n1"}


def test_a_node_that_was_away_before_the_first_look_is_away_since_then():
    world = World()
    world.node("n1", 4, False, False)
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n1", "Running", False, True)
    world.time_passes(3600.0)
    assert world.look().seen["uid-second"].lost_nodes == {"n1"}

"""Both halves of the soak's cluster as the simulator's random events and checker see them.

Random events of the simulator act only on the fake nodes, their teams and jobs. The checker sees real ones, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from typing import Any

from elastic_operator.cluster.errors import AlreadyExists
from elastic_operator.read.assumed_pods import ASSUMED_SECONDS
from tests.simulate import random_events as simulated
from tests.simulate import server as kinds
from tests.simulate.facts import (
    FLAVORS,
    POOL,
    ended,
    gpus_of,
    is_over,
    name_of,
    node_of,
    place_of,
    staying,
    terminating,
)
from tests.simulate.hostile import STATION
from tests.simulate.judge import sizes_hold
from tests.simulate.policies import NAMESPACES, OWNERS, PARENT
from tests.simulate.server import Body
from tests.simulate.violation import require
from tests.soak.fake_nodes import FakeNodesWorld
from tests.soak.mirror import LiveServer, Photo
from tests.soak.site import Site
from tests.soak.tenant import HOSTILE, keeps_its_limit

GUESTS = "guests"
TRAINERS = ("north", "south")
REAL_TEAMS = (*TRAINERS, GUESTS)
"""Namespaces, and policies of the same names, on real nodes."""
JOBS = 21
"""Jobs on fake nodes; two more train."""
LEAST_ALIVE = 20
FAKE_NODES = (("a", 8), ("a", 8), ("a", 8), ("a", 4), ("b", 8), ("b", 4))
SLOW_SECONDS = 2.0
"""An answer that takes longer is a server in trouble."""
QUIET_SECONDS = 6.0
"""Without a change of any pod for so long, the cluster rests."""
ENDED_SECONDS = 20
"""A job that has ended is deleted after so long, by the operator."""


class FakeSide(LiveServer):
    """The objects of the simulator's random events: all but the real nodes and the teams there."""

    def all(self, plural: str) -> list[Body]:
        """All objects of a kind, the oldest first."""
        return [one for one in super().all(plural) if _is_fake(plural, one)]


class WholeSide(LiveServer):
    """What the checker judges: all but pods that no team has."""

    def all(self, plural: str) -> list[Body]:
        """All objects of a kind, the oldest first."""
        teams = {*NAMESPACES, *REAL_TEAMS, HOSTILE}
        found = [one for one in super().all(plural) if one["metadata"].get("namespace", "free") in teams]
        return [_without_cpu(one) if one["metadata"].get("namespace") in REAL_TEAMS else one for one in found]

    def aside_in(self, objects: Mapping[str, list[Body]]) -> dict[str, str]:
        """Jobs and pods of the hostile team: they need not be served, but give back what they borrowed."""
        found = (one for plural in (kinds.JOBS, kinds.PODS) for one in objects[plural])
        return {name_of(one): STATION for one in found if one["metadata"]["namespace"] == HOSTILE}


class SoakWorld(FakeNodesWorld):
    """The fake half, and the judgement of both. Who calls, draws from the `rng` that the plan has given.

    Before `settled_at`, on the monotonic clock, whoever leads may not have heard yet of how things are.
    """

    def __init__(self, site: Site, rng: Random) -> None:
        self.site = site
        self.whole = WholeSide(site.client())
        self.settled_at = 0.0
        super().__init__(FakeSide(site.client()), rng)
        for pool, gpus in FAKE_NODES:
            self.add_node(gpus, pool)
        self._make_namespace(HOSTILE)

    def new_name(self, kind: str) -> str:
        """A name that nothing has had yet, real nodes (n1, n2) included."""
        return super().new_name("fake-" if kind == "n" else kind)

    def photo(self) -> Photo:
        """All teams, all nodes.

        A server that keeps us waiting keeps the operator waiting: a pod whose creation had no answer in time counts for
        a while before it is tried again.
        """
        begun = time.monotonic()
        photo = self.whole.photo()
        now = time.monotonic()
        if now - begun > SLOW_SECONDS:
            self.settled_at = max(self.settled_at, now + ASSUMED_SECONDS)
        return photo

    def leads(self) -> bool:
        """Whether an operator leads, and has heard of all there is."""
        return time.monotonic() >= self.settled_at and self.site.leads()

    def add_job(self, namespace: str, *, gpus: int, pool: str, cpu: int = 1, delay: int = 0, **spec: Any) -> Body:
        """A job that is taken away some time after it has ended."""
        own = {"ttlSecondsAfterFinished": ENDED_SECONDS, **spec}
        return super().add_job(namespace, gpus=gpus, pool=pool, cpu=cpu, delay=delay, **own)

    def fill_up(self) -> None:
        """So many jobs are alive on the fake nodes."""
        missing = JOBS - len(alive(self.server.all(kinds.JOBS)))
        for _ in range(missing):
            try:
                simulated.any_job_comes(self)  # type: ignore[arg-type]
            except AlreadyExists:
                continue  # a request that was answered late had been sent twice

    def rest_within(self, seconds: float) -> Photo | None:
        """What there is once no pod changes any more; None if pods still do after so long."""
        deadline, seen, since = time.monotonic() + seconds, None, time.monotonic()
        while time.monotonic() < deadline:
            photo = self.photo()
            now = sorted(_state(pod) for pod in photo.all(kinds.PODS)), self.leads()
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since >= QUIET_SECONDS and self.leads() and not _on_no_node(photo):
                return photo
            time.sleep(0.5)
        return None

    def always(self, photo: Photo) -> None:
        """What must hold at any moment, whatever happens."""
        sizes_hold(photo)
        living = len(alive(photo.all(kinds.JOBS)))
        require(living >= LEAST_ALIVE, f"{living} jobs are alive")
        _no_gpu_twice(photo)
        keeps_its_limit(photo)


def alive(jobs: list[Body]) -> list[Body]:
    """Those that have not ended and are not on their way out; the hostile team's do not count."""
    return [job for job in jobs if not is_over(job) and job["metadata"]["namespace"] != HOSTILE]


def gpus_by_team(photo: Photo) -> dict[str, int]:
    """GPUs of pods that are bound and stay, by namespace."""
    used = dict.fromkeys((*NAMESPACES, HOSTILE, *REAL_TEAMS), 0)
    for pod in photo.all(kinds.PODS):
        if node_of(pod) and staying(pod):
            used[pod["metadata"]["namespace"]] += gpus_of(pod)
    return used


def _no_gpu_twice(photo: Photo) -> None:
    """Pods that are bound to a node ask for no more than the node was made with; sick GPUs are still its own."""
    for node in photo.all(kinds.NODES):
        here = [pod for pod in photo.all(kinds.PODS) if node_of(pod) == name_of(node) and staying(pod)]
        has = int(node["status"].get("capacity", {}).get("nvidia.com/gpu", 0))
        promised = sum(map(gpus_of, here))
        told = f"{name_of(node)} has {has} GPUs, {promised} are in use by {sorted(map(name_of, here))}"
        require(promised <= has or not has, told)


def _on_no_node(photo: Photo) -> list[str]:
    """Pods whose node was taken out of the cluster: the garbage collector deletes them within a minute."""
    nodes = set(map(name_of, photo.all(kinds.NODES)))
    bound = [pod for pod in photo.all(kinds.PODS) if node_of(pod) and not ended(pod)]
    return [name_of(pod) for pod in bound if node_of(pod) not in nodes]


def _state(pod: Body) -> tuple[str, ...]:
    status, meta = pod["status"], pod["metadata"]
    return (
        meta["uid"],
        status.get("phase", ""),
        place_of(pod),
        status.get("nominatedNodeName", ""),
        str(terminating(pod)),
    )


def _without_cpu(one: Body) -> Body:
    """Real pods ask for parts of a CPU, which the simulator does not know and which are never short."""
    if "template" in one["spec"]:
        return {**one, "spec": {**one["spec"], "template": _without_cpu(one["spec"]["template"])}}
    containers = [{**c, "resources": {**c.get("resources", {}), "requests": {"cpu": "0"}}} for c in _containers(one)]
    return {**one, "spec": {**one["spec"], "containers": containers}}


def _containers(pod: Body) -> list[Body]:
    found: list[Body] = pod["spec"]["containers"]
    return found


def _is_fake(plural: str, one: Body) -> bool:
    meta = one["metadata"]
    if plural == kinds.NODES:
        return meta["labels"].get(POOL) in FLAVORS
    if plural == kinds.POLICIES:
        return meta["name"] in (*OWNERS, PARENT)
    return meta.get("namespace", meta["name"]) in NAMESPACES


def what_there_is(photo: Photo) -> str:
    """Nodes, policies, jobs with why they are not bigger, and pods, a line each."""
    lines = [f"node {name_of(n)} {n['status']['allocatable']} {n['spec']}" for n in photo.all(kinds.NODES)]
    lines += [f"policy {name_of(policy)} {policy['spec']}" for policy in photo.all(kinds.POLICIES)]
    for job in photo.all(kinds.JOBS):
        status, spec = job.get("status", {}), job["spec"]
        told = [f"{c['type']}={c['status']} {c['reason']}: {c.get('message')}" for c in status.get("conditions", [])]
        sizes = f"{status.get('replicas')} of {spec['minReplicas']}..{spec['maxReplicas']}"
        waits = [status[field] for field in ("retry", "failedSize") if field in status]
        lines.append(f"job {job['metadata']['namespace']}/{name_of(job)} {sizes} {told} {waits}")
    for pod in photo.all(kinds.PODS):
        meta = pod["metadata"]
        ways = f"{pod['status'].get('phase')} at {place_of(pod)} ({node_of(pod)})"
        lines.append(f"pod {meta['namespace']}/{name_of(pod)} {ways} {meta.get('deletionTimestamp', '')}")
    return "\n  ".join(lines)

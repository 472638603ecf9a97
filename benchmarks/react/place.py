"""The cluster that is measured, and what the benchmark asks of it: installed, filled, changed, listened to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from benchmarks.react import scenario
from benchmarks.react.audit import AuditLog, Write
from benchmarks.react.errors import BenchError
from benchmarks.react.scenario import NAMESPACE, Scenario
from demo import install
from demo.kube import Kube
from devcluster import cluster as clusters
from devcluster import projectimage
from devcluster.cluster import Cluster
from devcluster.names import Layout
from devcluster.progress import Progress

T = TypeVar("T")

POLICY = Path(__file__).parent / "audit-policy.yaml"
OPERATOR_NODE = "n1"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/elastic-pytorch.dev/v1beta1/namespaces/{NAMESPACE}/elasticpytorchjobs"
MERGE = {"Content-Type": "application/merge-patch+json"}
PARALLEL_REQUESTS = 4
POLL_SECONDS = 0.02
QUIET_SECONDS = 0.5
# On a busy machine heartbeats may come late: that is not what is measured.
NO_NODE_IS_LOST = "--node-monitor-grace-period=900s"
JOBS_AT_ONCE = 25


@dataclass(slots=True)
class Place:
    """A cluster with the operator in it, and its audit log."""

    cluster: Cluster
    http: httpx.Client
    audit: AuditLog

    def create(self, path: str, body: dict[str, Any]) -> None:
        """POST; BenchError if it is refused."""
        _accepted(self.http.post(path, json=body))

    def create_all(self, path: str, bodies: Sequence[dict[str, Any]]) -> None:
        """Many, a few at a time."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            list(pool.map(lambda body: self.create(path, body), bodies))

    def delete_pod(self, name: str) -> None:
        """At once, as the kubelet does in the end."""
        _accepted(self.http.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": "0"}))

    def annotate_job(self, job: str) -> None:
        """A change that asks for nothing."""
        change = {"metadata": {"annotations": {"note": "touched"}}}
        _accepted(self.http.patch(f"{JOBS}/{job}", headers=MERGE, json=change))

    def scale(self, job: str, size: int) -> None:
        """What `kubectl scale` sends."""
        _accepted(self.http.patch(f"{JOBS}/{job}/scale", headers=MERGE, json={"spec": {"replicas": size}}))

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a collection."""
        items: list[dict[str, Any]] = _accepted(self.http.get(path)).json()["items"]
        return items

    def until(self, what: str, look: Callable[[], T | None], *, seconds: float, pause: float = POLL_SECONDS) -> T:
        """What `look` finds, as soon as it is something; BenchError after `seconds`."""
        end = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > end:
                raise BenchError(f"waited {seconds:.0f} s for {what} in vain; logs are in {self.cluster.layout.logs}")
            time.sleep(pause)
        return found

    def quiet(self, *, seconds: float = 15.0) -> None:
        """Until nothing has been written for a moment; after `seconds` it goes on all the same."""
        end = time.monotonic() + seconds
        last, since = len(self.audit.read()), time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
            if (count := len(self.audit.read())) != last:
                last, since = count, time.monotonic()

    def last_write(self, what: str, name: str) -> Write:
        """The last write of that kind to that object, as soon as the log has it."""

        def look() -> Write | None:
            return next((w for w in reversed(self.audit.read()) if (w.what, w.name) == (what, name)), None)

        return self.until(f"{what} {name} in the audit log", look, seconds=10.0)


def _accepted(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise BenchError(f"{answer.request.method} {answer.request.url.path}: {answer.text[:500]}")
    return answer


@contextmanager
def standing(name: str, plan: Scenario, *, replicas: int, keep: bool, progress: Progress) -> Iterator[Place]:
    """The cluster, with fake nodes and the operator; taken down at the end, however it comes, unless to be kept."""
    archive = projectimage.build(progress)
    try:
        cluster = Cluster.up(
            name=name,
            nodes=1,
            gpus=0,
            torch_tree="",
            archives=[archive],
            api_server_flags=_audit(name),
            controller_manager_flags=[NO_NODE_IS_LOST],
            progress=progress,
        )
        for pool, count in (("full", plan.full_nodes), ("roomy", plan.roomy_nodes)):
            labels = scenario.pool(pool)
            gpus = scenario.GPUS_PER_NODE
            cluster.add_fake_nodes(count, gpus=gpus, prefix=f"{pool}-", labels=labels, progress=progress)
        kube = Kube(cluster.kubeconfig, cluster.kubectl, cluster.programs["helm"])
        here = ("--set", rf"nodeSelector.kubernetes\.io/hostname={OPERATOR_NODE}")
        install.install_operator(kube, progress, "--set", f"replicaCount={replicas}", *here)
        api = cluster.api
        with httpx.Client(base_url=api.server, verify=api.context, timeout=30, trust_env=False) as http:
            yield Place(cluster, http, AuditLog(_audit_file(name)))
    finally:
        if not keep:
            clusters.take_down(name, progress=progress)


def _audit_file(name: str) -> Path:
    return Layout(name).logs / "audit.log"


def _audit(name: str) -> list[str]:
    """In batches: no request waits for the log. Each event carries the times at which things happened."""
    flags = {"policy-file": POLICY, "log-path": _audit_file(name), "log-mode": "batch", "log-maxsize": 1000}
    return [f"--audit-{flag}={value}" for flag, value in flags.items()]


def fill(place: Place, plan: Scenario, progress: Progress) -> None:
    """First what others hold, then the jobs up to their first size; then they ask for twice as much."""
    place.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    place.until("the namespace's service account", lambda: place.items(account), seconds=30)
    with progress.step(f"{len(plan.foreign_pods)} foreign pods"):
        place.create_all(PODS, [scenario.foreign_pod(name) for name in plan.foreign_pods])
        _until_ready(place, len(plan.foreign_pods))
    with progress.step(f"{plan.jobs} jobs of {plan.size} pods") as step:
        names = [*plan.roomy_jobs, *plan.full_jobs]
        for started in range(0, plan.jobs, JOBS_AT_ONCE):
            step.detail = f"{started} run"
            place.create_all(JOBS, [scenario.job(name, size=plan.size) for name in names[started:][:JOBS_AT_ONCE]])
            running = min(started + JOBS_AT_ONCE, plan.jobs)
            _until_ready(place, len(plan.foreign_pods) + running * plan.size)
    place.quiet()
    with progress.step("now every job of the full pool wants twice as much"):
        for name in plan.full_jobs:
            place.scale(name, 2 * plan.size)
        place.quiet(seconds=60)


def _until_ready(place: Place, pods: int) -> None:
    place.until(f"{pods} pods to run", lambda: ready_pods(place) == pods, seconds=150, pause=0.5)


def ready_pods(place: Place) -> int:
    """Pods that are Ready, everybody's."""
    conditions = (pod["status"].get("conditions", []) for pod in place.items(PODS))
    return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in each) for each in conditions)


def until_statuses_are_true(place: Place) -> None:
    """Until the jobs' statuses count, together, the pods that are ready; BenchError if that does not come about."""

    def agree() -> bool:
        counted = sum(job.get("status", {}).get("readyReplicas", 0) for job in place.items(JOBS))
        foreign = sum(pod["metadata"]["name"].startswith("foreign-") for pod in place.items(PODS))
        return bool(counted == ready_pods(place) - foreign)

    place.until("the statuses of all jobs to count the pods that are ready", agree, seconds=10.0, pause=0.5)

"""The measured cluster: brought up, filled, changed, observed.

One real node holds the operator, from its image and under its own ServiceAccount. The GPU nodes are fake, unless the
real node gets GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from benchmarks.live.audit import AuditLog, Write
from benchmarks.live.errors import BenchError
from demo import install
from demo.kube import Kube
from devcluster import cluster as clusters
from devcluster import projectimage, torchtree
from devcluster.cluster import Cluster
from devcluster.fakenodes import KUBELETS_LEASE_SECONDS
from devcluster.names import Layout
from devcluster.progress import Progress

T = TypeVar("T")
Body = dict[str, Any]

OPERATOR_NODE = "n1"
OPERATOR = f"system:serviceaccount:{install.NAMESPACE}:{install.RELEASE}-operator"
"""The operator's name at the API server."""
CLIENT, KUBELETS = "admin", "kwok"
"""The names of the benchmarks themselves, and of KWOK, at the API server."""
CORE = "/api/v1"
NAMESPACES = f"{CORE}/namespaces"
ELASTIC = "/apis/elastic-pytorch.dev/v1beta1"
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC_MERGE = {"Content-Type": "application/strategic-merge-patch+json"}
PARALLEL_REQUESTS = 4
POLL_SECONDS = 0.02
QUIET_SECONDS = 0.5
# On a busy machine heartbeats may be late, which is not measured here.
NO_NODE_IS_LOST = "--node-monitor-grace-period=900s"


def pods_of(namespace: str) -> str:
    """The collection of a namespace's pods."""
    return f"{NAMESPACES}/{namespace}/pods"


def jobs_of(namespace: str) -> str:
    """The collection of a namespace's elastic jobs."""
    return f"{ELASTIC}/namespaces/{namespace}/elasticpytorchjobs"


@dataclass(slots=True)
class Place:
    """A cluster with the operator in it, and its audit log."""

    cluster: Cluster
    http: httpx.Client
    audit: AuditLog

    def create(self, path: str, body: Body, *, headers: Mapping[str, str] | None = None) -> Body:
        """POST an object; return the stored one. Raises BenchError if it is refused."""
        made: Body = _accepted(self.http.post(path, json=body, headers=headers)).json()
        return made

    def create_all(self, requests: Sequence[tuple[str, Body]], *, at_once: int = PARALLEL_REQUESTS) -> None:
        """Create many objects, each in its collection, a few at a time."""
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda request: self.create(*request), requests))

    def create_namespace(self, name: str) -> None:
        """A namespace in which pods can be created: its service account exists."""
        self.create(NAMESPACES, {"metadata": {"name": name}})
        account = f"{NAMESPACES}/{name}/serviceaccounts"
        self.until(f"the service account of namespace {name}", lambda: self.items(account), seconds=30)

    def delete(self, path: str, **options: str) -> None:
        """DELETE an object; a missing one is no error. Raises BenchError if it is refused."""
        answer = self.http.delete(path, params=options)
        if answer.status_code != httpx.codes.NOT_FOUND:
            _accepted(answer)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod at once, as the kubelet does at the end."""
        self.delete(f"{pods_of(namespace)}/{name}", gracePeriodSeconds="0")

    def annotate_job(self, namespace: str, name: str) -> None:
        """Annotate a job: a change without effect."""
        self.merge(f"{jobs_of(namespace)}/{name}", {"metadata": {"annotations": {"note": "touched"}}})

    def merge(self, path: str, change: Body, *, headers: Mapping[str, str] | None = None) -> None:
        """PATCH an object. Raises BenchError if it is refused."""
        _accepted(self.http.patch(path, headers={**MERGE, **(headers or {})}, json=change))

    def get(self, path: str) -> Body:
        """The object at `path`."""
        found: Body = _accepted(self.http.get(path)).json()
        return found

    def items(self, path: str) -> list[Body]:
        """The objects of a collection."""
        items: list[Body] = self.get(path)["items"]
        return items

    def until(self, what: str, look: Callable[[], T | None], *, seconds: float, pause: float = POLL_SECONDS) -> T:
        """Wait until `look` returns something, and return that. Raises BenchError after `seconds`."""
        end = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > end:
                raise BenchError(f"waited {seconds:.0f} s for {what} in vain; logs are in {self.cluster.layout.logs}")
            time.sleep(pause)
        return found

    def add_nodes(
        self, count: int, *, gpus: int, prefix: str = "k", labels: Mapping[str, str] | None = None, progress: Progress
    ) -> None:
        """Add fake nodes. They renew their leases as rarely as kubelets, since no node is lost here."""
        self.cluster.add_fake_nodes(
            count, gpus=gpus, prefix=prefix, labels=labels, lease_seconds=KUBELETS_LEASE_SECONDS, progress=progress
        )

    def now(self) -> float:
        """The audit log's clock, which is this machine's."""
        return time.time()

    def quiet(self, *, seconds: float = 15.0) -> None:
        """Wait until nothing has been written for a moment, for at most `seconds`."""
        end = time.monotonic() + seconds
        last, since = len(self.audit.read()), time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
            if (count := len(self.audit.read())) != last:
                last, since = count, time.monotonic()

    def last_write(self, what: str, name: str, *, since: float = 0.0) -> Write:
        """The last write of that kind to that object, once the log has one that arrived since that moment.

        The log is written in batches: right after a write it may still end with an older one to an object of that name.
        """

        def look() -> Write | None:
            found = (w for w in reversed(self.audit.read()) if (w.what, w.name) == (what, name))
            return next((w for w in found if w.received >= since), None)

        return self.until(f"{what} {name} in the audit log", look, seconds=10.0)


def _accepted(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise BenchError(f"{answer.request.method} {answer.request.url.path}: {answer.text[:500]}")
    return answer


@contextmanager
def standing(
    name: str,
    *,
    audited: Path,
    replicas: int,
    keep: bool,
    progress: Progress,
    gpus: int = 0,
    scheduler_flags: Sequence[str] = (),
    values: Sequence[str] = (),
) -> Iterator[Place]:
    """The cluster with its operator. It is taken down at any exit from the context, unless it is to be kept.

    `audited` is the audit policy, which decides the content of the log. The real node has `gpus`, and then also torch.
    `values` are added to the chart's, as helm's --set takes them.
    """
    try:
        cluster = Cluster.up(
            name=name,
            nodes=1,
            gpus=gpus,
            torch_tree=torchtree.DEFAULT_TREE if gpus else "",
            targets=projectimage.TARGETS,
            api_server_flags=_audit(name, audited),
            controller_manager_flags=[NO_NODE_IS_LOST],
            scheduler_flags=scheduler_flags,
            progress=progress,
        )
        kube = Kube(cluster.kubeconfig, cluster.kubectl, cluster.programs["helm"])
        where = rf"nodeSelector.kubernetes\.io/hostname={OPERATOR_NODE}"
        wanted = [word for value in (f"replicaCount={replicas}", where, *values) for word in ("--set", value)]
        install.install_operator(kube, progress, *wanted)
        api = cluster.api
        with httpx.Client(base_url=api.server, verify=api.context, timeout=120, trust_env=False) as http:
            yield Place(cluster, http, AuditLog(_audit_file(name)))
    finally:
        if not keep:
            clusters.take_down(name, progress=progress)


def _audit_file(name: str) -> Path:
    return Layout(name).logs / "audit.log"


def _audit(name: str, policy: Path) -> list[str]:
    """The flags for the audit log, in batches, so that no request waits for it. Events have their requests' times."""
    flags = {"policy-file": policy, "log-path": _audit_file(name), "log-mode": "batch", "log-maxsize": 1000}
    return [f"--audit-{flag}={value}" for flag, value in flags.items()]

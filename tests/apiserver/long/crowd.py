"""A crowd of jobs that comes, lives in different ways, and goes: what a cluster sees in weeks, in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.api.jobs import make_job, make_template, with_gpus
from tests.apiserver.faults.lab import ended_status, put_status
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually

Object = dict[str, Any]
THREADS = 8
WAIT_SECONDS = 120.0

WAYS = ("plain", "plain", "scaled", "bereaved", "failing", "successful", "expired", "suspended", "invalid", "plain")
"""How one job after the other lives; as many fail, succeed and so on in each crowd."""


@dataclass(frozen=True, slots=True)
class Member:
    """One job of a crowd."""

    name: str
    way: str
    pods: int

    def manifest(self) -> Object:
        """The job as its user applies it."""
        pod = {"restartPolicy": "Always"} if self.way == "invalid" else {}
        fields: Object = {"ttlSecondsAfterFinished": 0} if self.way == "expired" else {}
        return make_job(
            self.name,
            minReplicas=1,
            maxReplicas=self.pods,
            elasticity={"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1},
            template=make_template(with_gpus(1), **pod),
            **fields,
        )


@dataclass(frozen=True, slots=True)
class Crowd:
    """The jobs of one time, in a namespace that is theirs."""

    jobs: Jobs
    members: tuple[Member, ...]

    @classmethod
    def of(cls, jobs: Jobs, size: int) -> Crowd:
        """So many jobs of two to four pods."""
        return cls(jobs, tuple(Member(f"job-{i}", WAYS[i % len(WAYS)], 2 + i % 3) for i in range(size)))

    def come_and_go(self) -> None:
        """All of it; afterwards nothing is left."""
        self._each(lambda member: accepted(self.jobs.create(member.manifest())), self.members)
        self._until("all to run", lambda: self._are({"invalid": "InvalidSpec"}, otherwise="Running"))
        self._each(self._live, self.members)
        ends = {"invalid": "InvalidSpec", "suspended": "Suspended", "successful": "Succeeded", "expired": "gone"}
        self._until("all to have lived", lambda: self._are(ends, otherwise="Running") and self._have_changed())
        self.jobs.api.delete(self.jobs.path).raise_for_status()
        self._until("nothing to be left", lambda: not self.left())

    def left(self) -> list[str]:
        """What is there of jobs, pods, services and endpoint slices."""
        here = f"namespaces/{self.jobs.namespace}"
        slices = f"/apis/discovery.k8s.io/v1/{here}/endpointslices"
        paths = (self.jobs.path, f"/api/v1/{here}/pods", f"/api/v1/{here}/services", slices)
        return [item["metadata"]["name"] for path in paths for item in self._items(path)]

    # -- lives -------------------------------------------------------------------------------------------------------

    def _live(self, member: Member) -> None:
        match member.way:
            case "scaled":
                self.jobs.patch(member.name, {"spec": {"replicas": None, "maxReplicas": member.pods + 1}})
            case "bereaved":
                self.jobs.api.delete(f"{self._pod_path(member)}-worker-0").raise_for_status()
            case "failing":
                self._end(f"{self._pod_path(member)}-master-0", exit_code=1)
            case "successful" | "expired":
                for pod in ("master-0", *(f"worker-{i}" for i in range(member.pods - 1))):
                    self._end(f"{self._pod_path(member)}-{pod}", exit_code=0)
            case "suspended":
                accepted(self.jobs.patch(member.name, {"spec": {"suspend": True}}))

    def _end(self, path: str, *, exit_code: int) -> None:
        pod = self.jobs.api.get(path).raise_for_status().json()
        put_status(self.jobs.api, pod, ended_status(pod, exit_code))

    def _pod_path(self, member: Member) -> str:
        return f"/api/v1/namespaces/{self.jobs.namespace}/pods/{member.name}"

    # -- looks -------------------------------------------------------------------------------------------------------

    def _are(self, phases: dict[str, str], *, otherwise: str) -> bool:
        found = {job["metadata"]["name"]: _phase(job) for job in self._items(self.jobs.path)}
        return all(found.get(m.name, "gone") == phases.get(m.way, otherwise) for m in self.members)

    def _have_changed(self) -> bool:
        """What was done to the jobs is in their status, and their pods are there again."""
        found = {job["metadata"]["name"]: job["status"] for job in self._items(self.jobs.path)}
        sizes = {"scaled": 1}
        return all(
            found[m.name]["restarts"] >= (m.way in ("bereaved", "failing"))
            and found[m.name]["readyReplicas"] == m.pods + sizes.get(m.way, 0)
            for m in self.members
            if m.way in ("plain", "scaled", "bereaved", "failing")
        )

    def _items(self, path: str) -> list[Object]:
        items: list[Object] = self.jobs.api.get(path).raise_for_status().json()["items"]
        return items

    def _each(self, do: Callable[[Member], object], members: Iterable[Member]) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(do, members))

    def _until(self, what: str, look: Callable[[], bool]) -> None:
        eventually(what, look, seconds=WAIT_SECONDS, report=self._report)

    def _report(self) -> str:
        phases = Counter((m.way, p) for m in self.members for p in self._phases_of(m))
        return f"{dict(phases)}; {len(self.left())} objects left"

    def _phases_of(self, member: Member) -> list[str]:
        return [_phase(job) for job in self._items(self.jobs.path) if job["metadata"]["name"] == member.name]


def _phase(job: Object) -> str:
    """The reason of Ready."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((c["reason"] for c in conditions if c["type"] == "Ready"), "")

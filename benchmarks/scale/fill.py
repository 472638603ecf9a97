"""Creates a crowd of jobs at once, and measures the time until all their pods are ready, and the requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from benchmarks.live.audit import Write
from benchmarks.live.operators import Operator
from benchmarks.live.place import NAMESPACES, OPERATOR, Place, jobs_of, pods_of
from benchmarks.react.latencies import CREATE, JOB_STATUS, POD_READY, status_lags
from benchmarks.scale.scenario import NAMESPACE, Scenario
from elastic_api.pod_names import parse_pod_name

REQUESTS_AT_ONCE = 16
FILL_SECONDS = 900.0
LOOK_SECONDS = 1.0
"""The interval between checks. All times are from the log: more frequent checks would only cost CPU."""
JOBS, PODS = jobs_of(NAMESPACE), pods_of(NAMESPACE)
COLLECTIONS = {
    "secrets": f"{NAMESPACES}/{NAMESPACE}/secrets",
    "services": f"{NAMESPACES}/{NAMESPACE}/services",
    "endpointslices": f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
    "networkpolicies": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
    "pods": PODS,
}
"""The collections of all objects that the operator creates for a job, in the order of the plain client."""
CREATE_JOB = "create elasticpytorchjobs"


@dataclass(frozen=True, slots=True)
class Curve:
    """The times at which a crowd's pods were created and ready, in seconds since its first job arrived, in order."""

    created: Sequence[float]
    ready: Sequence[float]

    @property
    def created_seconds(self) -> float:
        """The seconds until the last pod was created."""
        return self.created[-1]

    @property
    def running_seconds(self) -> float:
        """The seconds until the last pod was ready."""
        return self.ready[-1]


@dataclass(frozen=True, slots=True)
class Fill:
    """A crowd that the operator started. `lags`: seconds until a job's status counted a ready pod.

    `requests` are all requests of the operator meanwhile, `statuses` its writes of jobs' statuses.
    """

    jobs: int
    curve: Curve
    lags: Sequence[float]
    requests: int
    statuses: int
    operator_cpu_seconds: float
    resident_megabytes: float

    @property
    def requests_per_pod(self) -> float:
        """The operator's requests for each pod."""
        return self.requests / len(self.curve.created)

    @property
    def statuses_per_job(self) -> float:
        """The writes of each job's status from its creation until all pods were ready."""
        return self.statuses / self.jobs


def curve(writes: Sequence[Write], jobs: Collection[str], *, since: float = 0.0) -> Curve:
    """The curve of the pods of these jobs since that moment. Each pod was created once."""
    names = frozenset(jobs)
    created: list[float] = []
    ready: dict[str, float] = {}
    begun = float("inf")
    for write in writes:
        if write.received < since:
            continue
        if write.what == CREATE_JOB and write.name in names:
            begun = min(begun, write.received)
        elif write.what in {CREATE, POD_READY} and job_of(write.name) in names:
            begun = min(begun, write.received)
            if write.what == CREATE:
                created.append(write.done)
            else:
                ready.setdefault(write.name, write.done)
    return Curve([at - begun for at in created], sorted(at - begun for at in ready.values()))


def job_of(pod: str) -> str:
    """The job of the pod of that name; empty if it cannot be a job's pod."""
    job = pod.rsplit("-", 2)[0]
    return job if parse_pod_name(job, pod) else ""


def by_operator(place: Place, plan: Scenario, jobs: int, leader: Operator) -> Fill:
    """Create the crowd and wait until all jobs run in full; the crowd stays."""
    place.quiet()
    names = plan.names(jobs)
    since, cpu = place.now(), leader.cpu_seconds()
    place.create_all([(JOBS, plan.job(name)) for name in names], at_once=REQUESTS_AT_ONCE)
    made = until_ready(place, names, jobs * plan.size, since=since)
    used = leader.cpu_seconds() - cpu
    place.quiet()
    until = since + made.running_seconds
    asked = [each for each in place.audit.requests if each.user == OPERATOR and since <= each.received <= until]
    return Fill(
        jobs=jobs,
        curve=made,
        lags=status_lags(place.audit.writes, names),
        requests=len(asked),
        statuses=sum(each.what == JOB_STATUS for each in asked),
        operator_cpu_seconds=used,
        resident_megabytes=leader.resident_megabytes(),
    )


def until_ready(
    place: Place,
    jobs: Collection[str],
    pods: int,
    *,
    since: float,
    seconds: float = FILL_SECONDS,
    told: Callable[[int], None] = lambda _: None,
) -> Curve:
    """Wait until that many pods of these jobs, all created since that moment, are ready; returns their curve.

    `told` is called with their present number at each check.
    """

    def look() -> Curve | None:
        made = curve(place.audit.read(), jobs, since=since)
        told(len(made.ready))
        return made if len(made.ready) >= pods else None

    return place.until(f"{pods} pods to be ready", look, seconds=seconds, pause=LOOK_SECONDS)


def clear(place: Place) -> None:
    """Delete all jobs with their objects, so that the garbage collector does not work beside the next crowd."""
    place.delete(JOBS)
    place.delete(PODS)

    def are_gone() -> bool:
        return not any(place.items(path) for path in (JOBS, *COLLECTIONS.values()))

    place.until("the end of all jobs and what belongs to them", are_gone, seconds=FILL_SECONDS, pause=1.0)
    place.quiet()

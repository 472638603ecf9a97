"""Creates jobs and ends them for minutes, while others run. It ends or deletes the jobs' pods itself.

KWOK's pods run until they are deleted. So this module writes the kubelet's status of an ended container.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto

import httpx

from benchmarks.live.errors import BenchError
from benchmarks.live.operators import DEPLOYMENT, Operator, machine_seconds, operators
from benchmarks.live.place import KUBELETS, OPERATOR, STRATEGIC_MERGE, Body, Place
from benchmarks.react.latencies import POD_READY
from benchmarks.reclaim.scenario import GPUS_PER_NODE
from benchmarks.scale import churned, takeover
from benchmarks.scale.churned import Churned, Mark
from benchmarks.scale.fill import JOBS, LOOK_SECONDS, PODS, REQUESTS_AT_ONCE, job_of, until_ready
from benchmarks.scale.scenario import NAMESPACE, SPARE, Scenario
from devcluster.progress import Progress
from elastic_api.pod_names import pod_name
from elastic_worker.contract import ROLE_MASTER

SHARE_OF_PLAIN = 0.25
"""Share of the rate at which a plain client starts pods. Pods arrive at this rate, and end at it: both make half."""
LIFE_SECONDS = 10.0
"""The time from the master's start, or a job's last event, to its next event."""
TTL_SECONDS = 10
"""How long an ended job exists. It is deleted, so that the operator's memory does not grow with time."""
STANDING_SECONDS = 30.0
"""The cluster has room for all jobs of this time: a job waits for the operator, not for the end of others."""
WARM_SECONDS = 2 * LIFE_SECONDS + TTL_SECONDS
"""The time before anything counts: after it jobs are created, end and are deleted at the same rate."""
DRAIN_SECONDS = 180.0
TICK_SECONDS = 0.1


class Step(Enum):
    """An event in the life of a job that runs."""

    LOSE = auto()
    FINISH = auto()
    FAIL = auto()


STORIES = (*[(Step.FINISH,)] * 7, *[(Step.LOSE, Step.FINISH)] * 2, (Step.FAIL,))
"""The sequences of events of jobs, in turn."""


def missing_nodes(plan: Scenario, rate: float) -> int:
    """The number of missing nodes for all jobs that run at a time, in addition to the plan's."""
    wanted = math.ceil((plan.jobs * plan.size + rate * STANDING_SECONDS) / GPUS_PER_NODE * SPARE)
    return max(0, wanted - plan.nodes)


def start_operators(place: Place, replicas: int) -> None:
    """Start that many operators, from none."""
    place.merge(f"{DEPLOYMENT}/scale", {"spec": {"replicas": replicas}})
    takeover.until_steady(place, replicas)


def churn(place: Place, plan: Scenario, *, seconds: float, rate: float, progress: Progress) -> Churned:
    """Let pods arrive at that rate, in whole jobs, beside jobs that run all the time."""
    if more := missing_nodes(plan, rate):
        place.add_nodes(more, gpus=GPUS_PER_NODE, prefix="more", progress=progress)
    with progress.step(f"{plan.jobs} jobs that run all the time"):
        base = [f"base-{number}" for number in range(plan.jobs)]
        since = place.now()
        place.create_all([(JOBS, plan.job(name)) for name in base], at_once=REQUESTS_AT_ONCE)
        until_ready(place, base, plan.jobs * plan.size, since=since)
        place.quiet()
    leader = operators(place)[0]
    stream = Stream(place, plan, interval=plan.size / rate)
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as stream.pool:
        with progress.step(f"jobs start and end for {WARM_SECONDS:g} s before the measurement"):
            stream.play(until=place.now() + WARM_SECONDS)
        marks, begun = [_mark(leader)], place.now()
        with progress.step(f"for {seconds / 60:g} minutes {rate:.1f} pods a second arrive, in jobs that end"):
            for third in (1, 2, 3):
                stream.play(until=begun + seconds * third / 3)
                marks.append(_mark(leader))
        with progress.step("the last of them end"):
            stream.drain()
    place.quiet()
    until = place.now()
    writes, jobs = place.audit.read(), list(stream.stories)
    asked = (each for each in place.audit.requests if each.user == OPERATOR and begun <= each.received <= until)
    waited, starved = churned.waits(writes, jobs, until=until)
    return Churned(
        begun=begun,
        lasted=seconds,
        rate=rate,
        changes=[each for each in churned.changes(writes, jobs, until=until) if each.at >= begun],
        waits=waited,
        starved=starved,
        requests=sum(1 for _ in asked),
        marks=[*marks, _mark(leader)],
    )


def _mark(leader: Operator) -> Mark:
    return Mark(
        cpu_seconds=leader.cpu_seconds(),
        pass_seconds=leader.metric("pass_seconds_sum"),
        passes=leader.metric("pass_seconds_count"),
        megabytes=leader.resident_megabytes(),
        machine_seconds=machine_seconds(),
    )


@dataclass(slots=True)
class Stream:
    """The jobs that arrive, one each `interval` seconds, and the next events of each."""

    place: Place
    plan: Scenario
    interval: float
    pool: ThreadPoolExecutor = field(init=False)
    stories: dict[str, list[Step]] = field(default_factory=dict)
    _ready: dict[str, list[str]] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)
    _sent: list[Future[None]] = field(default_factory=list)
    _next: float = field(default_factory=time.time)
    _seen: int = 0

    def play(self, *, until: float, arrive: bool = True) -> None:
        """Let jobs arrive, and carry out due events."""
        while (now := self.place.now()) < until:
            while arrive and self._next <= now:
                self._arrive()
            self._go_on(now)

    def drain(self) -> None:
        """Let no more jobs arrive, and wait until all jobs and their pods are deleted, for a limited time."""
        end = self.place.now() + DRAIN_SECONDS
        while self._are_left() and self.place.now() < end:
            self.play(until=self.place.now() + LOOK_SECONDS, arrive=False)

    def _are_left(self) -> bool:
        names = (each["metadata"]["name"] for path in (JOBS, PODS) for each in self.place.items(path))
        return any(name in self.stories or job_of(name) in self.stories for name in names)

    def _arrive(self) -> None:
        number = len(self.stories)
        name = f"churn-{number}"
        self.stories[name] = list(STORIES[number % len(STORIES)])
        self._ready[name] = []
        self._next += self.interval
        body = self.plan.job(name)
        body["spec"] |= {"ttlSecondsAfterFinished": TTL_SECONDS, "recovery": {"maxFailuresWithoutProgress": 0}}
        self._sent.append(self.pool.submit(self._create, body))

    def _create(self, body: Body) -> None:
        self.place.create(JOBS, body)

    def _go_on(self, now: float) -> None:
        """Carry out due events, and read the kubelets' changes; then rest for a moment."""
        while self._due and self._due[0][0] <= now:
            _, job = heapq.heappop(self._due)
            step, ready = self.stories[job].pop(0), self._ready[job]
            if step is Step.LOSE:
                if len(ready) > 1:
                    self._sent.append(self.pool.submit(self.place.delete_pod, NAMESPACE, ready.pop()))
                heapq.heappush(self._due, (now + LIFE_SECONDS, job))
            else:
                self._sent.append(self.pool.submit(self._end, list(ready), failed=step is Step.FAIL))
                ready.clear()
                self.stories[job].append(step)  # again, if the operator tries the job again
        self.place.audit.read()
        requests = self.place.audit.requests
        for write in requests[self._seen :]:
            if write.what == POD_READY and write.user == KUBELETS:
                self._note(write.name, now)
        self._seen = len(requests)
        for sent in [each for each in self._sent if each.done()]:
            self._sent.remove(sent)
            sent.result()
        time.sleep(TICK_SECONDS)

    def _note(self, pod: str, now: float) -> None:
        """Note a pod, the master first: it ends the job, and is never lost."""
        job = job_of(pod)
        ready = self._ready.get(job)
        if ready is not None and pod not in ready:
            if pod == pod_name(job, ROLE_MASTER, 0):
                ready.insert(0, pod)
                heapq.heappush(self._due, (now + LIFE_SECONDS, job))
            else:
                ready.append(pod)

    def _end(self, pods: Sequence[str], *, failed: bool) -> None:
        """Write the kubelets' statuses of exited containers, for all pods or, if the job fails, for the master."""
        for pod in pods[:1] if failed else pods:
            answer = self.place.http.patch(f"{PODS}/{pod}/status", json=_ended(failed=failed), headers=STRATEGIC_MERGE)
            if not answer.is_success and answer.status_code != httpx.codes.NOT_FOUND:  # it may be deleted
                raise BenchError(f"pod {pod} cannot end: {answer.text[:500]}")


def _ended(*, failed: bool) -> Body:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended = {"exitCode": int(failed), "startedAt": now, "finishedAt": now}
    container = {"name": "pytorch", "image": "local/none:1", "imageID": "", "ready": False, "restartCount": 0}
    return {
        "status": {
            "phase": "Failed" if failed else "Succeeded",
            "conditions": [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [{**container, "state": {"terminated": ended}}],
        }
    }

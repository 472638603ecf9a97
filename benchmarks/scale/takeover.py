"""Measures how long a lost pod waits right after the end or the start of the operator."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.live.operators import DEPLOYMENT, TICKS_PER_SECOND, Operator, operators, stop
from benchmarks.live.place import NAMESPACES, Place
from benchmarks.react.latencies import CREATE
from benchmarks.scale.scenario import NAMESPACE
from demo import install
from devcluster.progress import Progress
from elastic_api.pod_names import parse_pod_name

STEADY_SECONDS = 120.0


def after_kill(place: Place, job: str) -> float:
    """Seconds from SIGKILL of the leader to the successor of a pod deleted with it: lease and start of the standby."""
    leader = operators(place)[0]
    return _successor(place, job, lambda: os.kill(leader.pid, signal.SIGKILL))


def after_stop(place: Place, job: str) -> float:
    """The same seconds if the leader's pod is deleted, as in a rollout: it gives the lease back."""
    pod = operators(place)[0].pod
    return _successor(place, job, lambda: place.delete(f"{NAMESPACES}/{install.NAMESPACE}/pods/{pod}"))


def after_both(place: Place, one: str, two: str, replicas: int, progress: Progress) -> tuple[float, float]:
    """Seconds after SIGKILL, and after a stop, of the leader; each time until all operators are ready again."""
    with progress.step("the leader is killed"):
        killed = after_kill(place, one)
        until_steady(place, replicas)
    with progress.step("the leader is stopped"):
        stopped = after_stop(place, two)
        until_steady(place, replicas)
    return killed, stopped


def after_start(place: Place, job: str) -> float:
    """Seconds from the exec of the only operator to its first pod, which a job had lost while there was none."""
    stop(place)
    place.delete_pod(NAMESPACE, f"{job}-worker-0")
    since = place.now()
    place.merge(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 1}})
    created = _created(place, job, since)
    return created - _started(operators(place)[0])


def until_steady(place: Place, replicas: int) -> None:
    """Wait until all operators run and are ready again."""

    def are_ready() -> bool:
        status = place.get(DEPLOYMENT)["status"]
        return bool(status.get("readyReplicas") == status.get("replicas") == replicas)

    place.until(f"{replicas} operators to be ready", are_ready, seconds=STEADY_SECONDS, pause=0.5)
    place.quiet()


def _successor(place: Place, job: str, act: Callable[[], None]) -> float:
    place.quiet()
    since = place.now()
    act()
    place.delete_pod(NAMESPACE, f"{job}-worker-0")
    return _created(place, job, since) - since


def _created(place: Place, job: str, since: float) -> float:
    """When the operator created the next pod of the job, after that moment."""

    def look() -> float | None:
        created = (write for write in place.audit.read() if write.what == CREATE and write.received > since)
        return next((write.done for write in created if parse_pod_name(job, write.name)), None)

    return place.until(f"a successor of a worker of job {job}", look, seconds=STEADY_SECONDS)


def _started(operator: Operator) -> float:
    """The time of its exec, in seconds since 1970."""
    ticks = int(Path(f"/proc/{operator.pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / TICKS_PER_SECOND)

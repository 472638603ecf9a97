"""The use of the machine by the operator's processes, and their metrics."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live.errors import BenchError
from benchmarks.live.place import NAMESPACES, OPERATOR_NODE, Place, pods_of
from demo.install import NAMESPACE, RELEASE
from devcluster import cgroups

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-operator"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1e6
BETWEEN_CHANGES_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator process, seen from the machine (`pid`) and from the cluster (`pod`)."""

    place: Place
    pod: str
    pid: int

    def resident_megabytes(self) -> float:
        """VmRSS."""
        return self._memory("VmRSS")

    def highest_resident_megabytes(self) -> float:
        """The highest so far (VmHWM)."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return (
            next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:")) * 1024 / MEGABYTE
        )

    def cpu_seconds(self) -> float:
        """CPU seconds since its start, in user space and in the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def metric(self, name: str) -> float:
        """The value of a sample without labels in /metrics."""
        answer = self.place.http.get(f"{NAMESPACES}/{NAMESPACE}/pods/{self.pod}:8080/proxy/metrics")
        found = re.search(rf"^elastic_pytorch_{name} (\S+)$", answer.text, re.MULTILINE)
        if found is None:
            raise BenchError(f"pod {self.pod} has no metric {name}: {answer.text[:200]}")
        return float(found[1])

    @property
    def leads(self) -> bool:
        """Whether it is the leader."""
        return self.metric("leader") == 1


def machine_seconds() -> float:
    """Busy CPU seconds of this machine since its start: not idle, and not waiting for a disk."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def operators(place: Place) -> list[Operator]:
    """All operators, the leader first."""
    found = []
    for pid in cgroups.pids(place.cluster.layout.cgroup(OPERATOR_NODE)):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:3] and words[1].endswith(b"elastic-operator"):
            environment = dict(
                item.partition(b"=")[::2] for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            )
            found.append(Operator(place, environment[b"POD_NAME"].decode(), pid))
    if sum(operator.leads for operator in found) != 1:
        raise BenchError(f"not one of the {len(found)} operators leads")
    return sorted(found, key=lambda operator: not operator.leads)


@contextmanager
def paused(operators: Iterable[Operator]) -> Iterator[None]:
    """Stop these processes inside the context. Keep it below five seconds: then the leader renews its lease in time."""
    pids = [operator.pid for operator in operators]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def stop(place: Place) -> None:
    """Stop all operators."""
    place.merge(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 0}})
    place.until("the operators' end", lambda: not place.items(pods_of(NAMESPACE)), seconds=60)


@dataclass(slots=True)
class Timer:
    """The growth of one of the operator's histograms of seconds between two readings."""

    operator: Operator
    histogram: str
    _sum: float = 0.0
    _count: float = 0.0

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> tuple[float, float]:
        """Seconds and number of the observations since the last reading."""
        total, count = (self.operator.metric(f"{self.histogram}_{part}") for part in ("sum", "count"))
        gained = total - self._sum, count - self._count
        self._sum, self._count = total, count
        return gained


def unchanged_passes(place: Place, leader: Operator, *, jobs: Iterable[tuple[str, str]]) -> list[tuple[float, float]]:
    """Seconds and number of the passes after a change of each of `jobs` (namespace, name) that has no effect."""
    timer = Timer(leader, "pass_seconds")
    found = []
    for namespace, name in jobs:
        place.annotate_job(namespace, name)
        time.sleep(BETWEEN_CHANGES_SECONDS)
        found.append(timer.look())
    return [(seconds, count) for seconds, count in found if count]

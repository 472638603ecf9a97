"""What the operator's processes take of the machine, and what they say of their passes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.react.errors import BenchError
from benchmarks.react.place import OPERATOR_NODE, Place
from demo.install import NAMESPACE
from devcluster import cgroups

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
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024 / MEGABYTE

    def cpu_seconds(self) -> float:
        """Used since it started, in user space and in the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def metric(self, name: str) -> float:
        """A sample without labels, as /metrics has it."""
        answer = self.place.http.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{self.pod}:8080/proxy/metrics")
        found = re.search(rf"^elastic_pytorch_{name} (\S+)$", answer.text, re.MULTILINE)
        if found is None:
            raise BenchError(f"pod {self.pod} has no metric {name}: {answer.text[:200]}")
        return float(found[1])

    @property
    def leads(self) -> bool:
        """Whether it is the one that acts."""
        return self.metric("leader") == 1


def operators(place: Place) -> list[Operator]:
    """All of them, the leader first."""
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


@dataclass(frozen=True, slots=True)
class Rest:
    """What one operator took over some time: share of one core in percent, memory at the end, passes it made."""

    pod: str
    cpu_percent: float
    resident_megabytes: float
    passes: float


def at_rest(operators: list[Operator], *, seconds: float) -> list[Rest]:
    """Watch them for so long."""
    before = [(time.monotonic(), each.cpu_seconds(), each.metric("pass_seconds_count")) for each in operators]
    time.sleep(seconds)
    found = []
    for each, (started, cpu, passes) in zip(operators, before, strict=True):
        percent = 100 * (each.cpu_seconds() - cpu) / (time.monotonic() - started)
        count = each.metric("pass_seconds_count") - passes
        found.append(Rest(each.pod, percent, each.resident_megabytes(), count))
    return found


def unchanged_pass_seconds(place: Place, leader: Operator, *, jobs: Iterable[str]) -> tuple[float, float]:
    """Mean time of the passes woken by a change of each of `jobs` that asks for nothing, and how many there were."""
    seconds, count = leader.metric("pass_seconds_sum"), leader.metric("pass_seconds_count")
    for job in jobs:
        place.annotate_job(job)
        time.sleep(BETWEEN_CHANGES_SECONDS)
    passes = leader.metric("pass_seconds_count") - count
    return (leader.metric("pass_seconds_sum") - seconds) / max(passes, 1), passes

"""The whole time of a lost master, on a real cluster: from the kill of its pod to the first step after it.

Unlike in the change `master`, the operator creates the successor. So the time includes the detection, the creation of
the pod, its scheduling, its start by the kubelet, and the import of torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.live import place as live
from benchmarks.live.audit import Write
from benchmarks.live.errors import BenchError
from benchmarks.live.place import NAMESPACES, OPERATOR_NODE, Body, Place, jobs_of, pods_of
from benchmarks.rescale import steps
from benchmarks.rescale.loads import Load
from benchmarks.rescale.steps import Cost, Step
from benchmarks.rescale.systems import LIBRARY_SCRIPT, SCRIPT, TOY, System
from devcluster import cgroups
from devcluster.images import BASE_REF
from devcluster.progress import Progress
from elastic_api.job import API_VERSION, KIND, RuntimeMode
from elastic_worker.contract import MAIN_CONTAINER

NAME = "lost_master"
"""The name of the change, like those of the job without Kubernetes."""
POLICY = Path(__file__).parent / "audit-policy.yaml"
NAMESPACE = "bench"
PODS, GPUS = 3, 4
CLAIM, FOLDER, SCRIPTS = "checkpoints", "/checkpoints", "/script"
STEADY_STEPS = 60
SECONDS = 180.0
MADE, BOUND = "create pods", "create pods/binding"
PARTS = ("killed", "made", "bound", "begun", "stepped")
"""The kill; the successor's creation, its binding, the start of its first process; a survivor's step."""


@contextmanager
def standing(cluster: str, progress: Progress) -> Iterator[Place]:
    """One node with GPUs and the operator on it, a folder that pods share, and the scripts; taken down at the end."""
    with live.standing(cluster, audited=POLICY, replicas=1, gpus=GPUS, keep=False, progress=progress) as place:
        place.create_namespace(NAMESPACE)
        place.cluster.shared_claim(NAMESPACE, name=CLAIM)
        scripts = {file.name: file.read_text() for file in (SCRIPT, LIBRARY_SCRIPT, TOY)}
        place.create(f"{NAMESPACES}/{NAMESPACE}/configmaps", {"metadata": {"name": "script"}, "data": scripts})
        yield place


def measure(place: Place, system: System, load: Load, *, number: int) -> Cost:
    """The cost for a new job with a unique number. Raises BenchError if it does not train (again)."""
    job = _Job(place, f"toy-{number}")
    job.start(system, load)
    job.until_trains("three pods to train", since=0.0)
    place.until("some steps", lambda: len(job.steps()) >= STEADY_STEPS, seconds=SECONDS)
    clock = time.time() - time.monotonic()
    killed = time.monotonic()
    os.kill(job.first_process(job.master), signal.SIGKILL)
    job.until_trains("three pods to train again", since=killed)
    seen = job.steps()
    pause = steps.pause(seen, since=killed, counted_from=killed)
    marks = {
        "killed": killed,
        "made": job.moment(MADE, since=killed + clock) - clock,
        "bound": job.moment(BOUND, since=killed + clock) - clock,
        "begun": _started(job.first_process(job.master)),
        "stepped": killed + pause,
    }
    job.end()
    seconds = seen[-1].time - killed
    return steps.cost(seen, decided=killed, counted_from=killed, seconds=seconds, parts=parts(marks))


def parts(marks: dict[str, float]) -> dict[str, float]:
    """Seconds from each of the marks to the next."""
    return {name: round(marks[name] - marks[before], 3) for before, name in pairwise(PARTS)}


def first(writes: Iterable[Write], what: str, name: str, *, since: float) -> float | None:
    """When the API server received the first write of that kind to that object after `since`.

    It may answer the creation of a pod after it has answered its binding, because kube-scheduler sees the pod earlier.
    """
    return next(
        (write.received for write in writes if (write.what, write.name) == (what, name) and write.received > since),
        None,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    place: Place
    name: str

    @property
    def master(self) -> str:
        return f"{self.name}-master-0"

    @property
    def folder(self) -> Path:
        return self.place.cluster.layout.shared / f"{NAMESPACE}-{CLAIM}" / self.name

    def start(self, system: System, load: Load) -> None:
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.place.create(jobs_of(NAMESPACE), manifest(self.name, system, load))

    def end(self) -> None:
        """Delete the job and wait until its pods are removed, so that it does not affect the next one."""
        self.place.delete(f"{jobs_of(NAMESPACE)}/{self.name}")
        for pod in self.place.items(
            pods_of(NAMESPACE)
        ):  # the garbage collector takes half a minute to learn a new kind
            self.place.delete(f"{pods_of(NAMESPACE)}/{pod['metadata']['name']}", gracePeriodSeconds="1")
        self.place.until("the pods to go", lambda: not self.place.items(pods_of(NAMESPACE)), seconds=SECONDS)

    def steps(self) -> list[Step]:
        """The steps of a worker, which outlives the master; in Torchrun mode also those of the worker after it.

        That worker may have another name, because the old names are free again only when the old pods have ended.
        """
        files = [steps.read(file) for file in self.folder.glob(f"steps-{self.name}-worker-*.jsonl")]
        by_start = sorted(filter(None, files), key=lambda found: found[0].time)
        first = by_start[0] if by_start else []
        return [*first, *next((later for later in by_start if later[0].time > first[-1].time), [])]

    def until_trains(self, what: str, *, since: float) -> None:
        """Wait until all pods train in a group that was formed after `since`."""
        self.place.until(what, lambda: steps.trains(self.steps(), world=PODS, since=since), seconds=SECONDS)

    def moment(self, what: str, *, since: float) -> float:
        """When the API server received that write to the master, in seconds since 1970."""

        def look() -> float | None:
            return first(self.place.audit.read(), what, self.master, since=since)

        return self.place.until(f"{what} {self.master} in the audit log", look, seconds=10.0)

    def first_process(self, pod: str) -> int:
        """The pid on this machine of the first process in the pod's main container."""
        mark = f"BENCH_POD={pod}".encode()
        for pid in cgroups.pids(self.place.cluster.layout.cgroup(OPERATOR_NODE)):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                numbers = next(line.split() for line in status.splitlines() if line.startswith("NSpid:"))
                if numbers[-1] == "1" and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    return pid
        raise BenchError(f"pod {pod} has no process; logs are in {self.place.cluster.layout.logs}")


def manifest(name: str, system: System, load: Load) -> Body:
    """The job of three pods of one GPU, in the mode that the system stands for."""
    folder = f"{FOLDER}/{name}"
    container = {
        "name": MAIN_CONTAINER,
        "image": BASE_REF,
        "imagePullPolicy": "Never",
        "args": [f"{SCRIPTS}/{system.script.name}", folder, *load.arguments],
        "env": [{"name": "BENCH_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "volumeMounts": [{"name": "script", "mountPath": SCRIPTS}, {"name": CLAIM, "mountPath": FOLDER}],
    }
    volumes = [
        {"name": "script", "configMap": {"name": "script"}},
        {"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}},
    ]
    elastic = {
        "runtime": {"mode": str(RuntimeMode.ELASTIC)},
        "elasticity": {"checkpointPath": f"{folder}/{'checkpoints' if system.is_library else 'checkpoint.pt'}"},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "minReplicas": PODS - 1,
            "maxReplicas": PODS,
            "nprocPerNode": 1,
            "template": {"spec": {"containers": [container], "volumes": volumes}},
            **(elastic if system.is_elastic else {}),
        },
    }


def _started(pid: int) -> float:
    """When the process started, in the machine's monotonic seconds."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age

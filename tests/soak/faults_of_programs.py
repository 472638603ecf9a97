"""Faults of the operator and of the control plane: killed, frozen, replaced, its storage compacted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from random import Random

from devcluster.faults import PartFaults
from devcluster.progress import Progress
from tests.cluster import processes
from tests.cluster.lab import OPERATOR_NAMESPACE
from tests.cluster.leader import Leader
from tests.soak.stage import Deeds, Stage, for_a_while


def leader_killed(stage: Stage, rng: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """SIGKILL; the kubelet starts its container again."""
    os.kill(Leader(stage.site.lab).wait_until_there(), signal.SIGKILL)
    yield "the operator that leads is killed"
    stage.site.wait_operators()


def operators_killed(stage: Stage, rng: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """All of them at once."""
    pids = processes.of_operators(stage.site.cluster)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    yield f"all {len(pids)} operators are killed"
    stage.site.wait_operators()


def leader_frozen(stage: Stage, rng: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """Longer than its lease: another one leads when it wakes up."""
    pid = Leader(stage.site.lab).wait_until_there()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield "the operator that leads is frozen"
    finally:
        _continue(pid)
    stage.site.wait_operators()


def operator_pod_deleted(stage: Stage, rng: Random) -> Iterator[str]:
    """Somebody deletes one of the operator's pods."""
    pod = rng.choice(sorted(pod["metadata"]["name"] for pod in Leader(stage.site.lab).pods()))
    stage.site.lab.kubectl("delete", "pod", pod, "-n", OPERATOR_NAMESPACE, "--wait=false")
    yield "a pod of the operator is deleted"
    stage.site.wait_operators()


def operator_upgraded(stage: Stage, rng: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """`helm upgrade` to a chart that rolls the pods."""
    stage.site.install(Progress(quiet=True))
    yield "the operator is upgraded"
    stage.site.wait_operators()


def killed(part: str) -> Deeds:
    """A program of the control plane is killed, and started again later."""
    return _done_to(part, "killed", PartFaults.kill, PartFaults.restart)


def frozen(part: str) -> Deeds:
    """It answers nobody for a while; its connections stay open."""
    return _done_to(part, "frozen", PartFaults.freeze, PartFaults.thaw)


def _done_to(part: str, told: str, harm: Callable[[PartFaults], None], mend: Callable[[PartFaults], None]) -> Deeds:
    def choose(stage: Stage, _: Random) -> PartFaults:
        return stage.site.cluster.part(part)

    return for_a_while(choose, lambda _: f"{part} is {told}", harm, mend, lambda stage, _: stage.site.wait_answers())


def etcd_compacted(stage: Stage, rng: Random) -> Iterator[str]:  # noqa: ARG001 - as the others
    """While the API server is away: nobody can go on watching where it was, all must list anew."""
    cluster = stage.site.cluster
    server = cluster.part("apiserver")
    server.kill()
    try:
        cluster.compact()
        yield "etcd is compacted while the API server is away"
    finally:
        server.restart()
    stage.site.wait_answers()


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return

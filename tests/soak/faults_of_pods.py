"""Faults of pods: a training's processes and pods, pods of jobs on fake nodes, pods of others that want GPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from random import Random

from devcluster.images import PAUSE_REF
from tests.cluster.lab import Object, wait
from tests.simulate import foreign
from tests.simulate import random_events as simulated
from tests.simulate.facts import GPU, POOL
from tests.soak.edits import GUARANTEED
from tests.soak.site import REAL
from tests.soak.stage import Deeds, Stage
from tests.soak.trainings import RealTraining
from tests.soak.world import GUESTS

FORCE = ("--force", "--grace-period=0")
GUEST_SECONDS = 90.0
"""Within so long a guest gets the GPU that is guaranteed to its team."""


def _any_training(stage: Stage, rng: Random) -> RealTraining:
    return stage.trainings[rng.choice(sorted(stage.trainings))]


def training_process(told: str, number: signal.Signals) -> Deeds:
    """One rank's process gets that signal; of one that is frozen, the launcher makes an end."""

    def fault(stage: Stage, rng: Random) -> Iterator[str]:
        training = _any_training(stage, rng)
        pod = training.pod(rng)
        done = pod and training.on_process(pod, lambda pid: os.kill(pid, number))
        yield f"{training.name}: the training process of {pod} is {told}" if done else ""

    return fault


def launcher_killed(stage: Stage, rng: Random) -> Iterator[str]:
    """SIGKILL to the first process of a pod, and so to all in it."""
    training = _any_training(stage, rng)
    pod = training.pod(rng)
    if pod:
        training.dies(pod)
    yield f"{training.name}: the launcher of {pod} is killed" if pod else ""


def deleted(role: str, *, by_force: bool = False) -> Deeds:
    """Somebody deletes a pod of a training."""

    def fault(stage: Stage, rng: Random) -> Iterator[str]:
        training = _any_training(stage, rng)
        pod = training.pod(rng, role)
        if pod:
            training.team.delete_pod(f"toy-{pod}", *(FORCE if by_force else ()))
        yield f"{training.name}: {pod} is deleted{' by force' * by_force}" if pod else ""

    return fault


def guests_come(stage: Stage, rng: Random) -> Iterator[str]:
    """Plain pods ask for what is guaranteed to their team, and get it; the trainings release pods."""
    names = [f"guest-{rng.getrandbits(32):08x}" for _ in range(rng.randint(1, GUARANTEED))]
    kubectl = stage.site.lab.kubectl
    kubectl("-n", GUESTS, "apply", "-f", "-", objects=[_guest(name) for name in names])
    yield f"{len(names)} pods of {GUESTS} come"
    for name in names:
        wait(f"{name} to run", lambda name=name: _runs(stage, name), seconds=GUEST_SECONDS)  # type: ignore[misc]
    kubectl("-n", GUESTS, "delete", "pod", *names)


def _guest(name: str) -> Object:
    resources = {"limits": {GPU: 1}, "requests": {"cpu": "0"}}
    container = {"name": "main", "image": PAUSE_REF, "imagePullPolicy": "Never", "resources": resources}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "nodeSelector": {POOL: REAL}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _runs(stage: Stage, name: str) -> bool:
    pod = stage.site.lab.get(f"/api/v1/namespaces/{GUESTS}/pods/{name}")
    return bool(pod) and pod["status"].get("phase") == "Running"


# -- on fake nodes ---------------------------------------------------------------------------------------------------


def foreigners_come(stage: Stage, rng: Random) -> Iterator[str]:
    """Some pods of others ask for GPUs; later some of them end."""
    world = stage.world
    world.rng = rng
    yield "; ".join(filter(None, (foreign.foreign_comes(world) for _ in range(4))))  # type: ignore[arg-type]
    world.rng = rng
    for _ in range(4):
        foreign.foreign_ends(world)  # type: ignore[arg-type]


def pod_fails(stage: Stage, rng: Random) -> Iterator[str]:
    """A pod of a job on a fake node ends with code 1."""
    stage.world.rng = rng
    yield simulated.pod_fails(stage.world)  # type: ignore[arg-type]


def pod_is_deleted(stage: Stage, rng: Random) -> Iterator[str]:
    """Somebody deletes a pod of a job on a fake node."""
    stage.world.rng = rng
    yield simulated.pod_is_deleted(stage.world)  # type: ignore[arg-type]

"""One training job of local pods. The benchmark takes the operator's place: it starts and ends pods."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.live.errors import BenchError
from benchmarks.local.places import HERE, Place, free_port, write_membership
from benchmarks.local.pods import Pod
from benchmarks.rescale import steps
from benchmarks.rescale.loads import Load
from benchmarks.rescale.steps import Step
from benchmarks.rescale.systems import FEWEST, MOST, System, command_of, environ_of

START_SECONDS = 180.0
LOOK_SECONDS = 0.02


class Job:
    """Pod 0 is the master. Ends all pods at the end of its context."""

    def __init__(self, system: System, folder: Path, load: Load) -> None:
        self.system, self.folder, self.load = system, folder, load
        self.pods: dict[int, Pod] = {}
        self._uids: dict[int, str] = {}
        self._port = free_port()
        self._status_ports: dict[int, int] = {}
        self._memberships = self._epoch = self._made = 0
        self._incarnation = 1
        folder.mkdir(parents=True)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pod in self.pods.values():
            pod.kill()

    # -- the operator's part ------------------------------------------------------------------------------------------

    def add(self, *indices: int) -> None:
        """Start these pods."""
        for index in indices:
            self._made += 1
            self._epoch += index == 0
            self._uids[index] = f"{index}-{self._made}"
            place = self._place(index)
            log = self.folder / f"log-{place.name}.txt"
            command, environ = command_of(self.system, self.folder, self.load), environ_of(self.system, place)
            self.pods[index] = Pod(place.name, command, environ=environ, log=log, first_pid=100 * self._made)

    def write_membership(self, *indices: int) -> None:
        """Name the pods that take part. torchrun accepts all pods that connect."""
        if not self.system.is_elastic:
            return
        self._memberships += 1
        write_membership(map(self._place, indices), number=self._memberships)

    def replace_master(self) -> None:
        """Start a new master for a lost one. Under torchrun the whole job is restarted, as by the operator."""
        if self.system.is_tuned:
            self._incarnation += 1
            for pod in self.pods.values():
                pod.kill()
            self.add(*self.pods)
        else:
            self.add(0)

    # -- observations -------------------------------------------------------------------------------------------------

    def steps(self, index: int) -> list[Step]:
        """The steps of the processes of that pod, restarted ones included."""
        return steps.read(self.folder / f"steps-{self._place(index).name}.jsonl")

    def status(self, index: int = 0) -> dict[str, Any]:
        """A pod's /status, the master's by default; {} while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HERE}:{self._status_ports[index]}/status", timeout=1) as answer:
                status = json.load(answer)
        except (OSError, ValueError):
            return {}
        return status if isinstance(status, dict) else {}

    def is_warm(self, index: int = 0) -> bool:
        """Whether a pod can take part at once; with torchrun, whether the agents can connect to the master."""
        if self.system.is_elastic:
            return bool(self.status(index).get("warm"))
        with socket.socket() as probe:
            return probe.connect_ex((HERE, self._port)) == 0

    def wait(self, what: str, look: Callable[[], bool], *, seconds: float = START_SECONDS) -> None:
        """Wait until the condition holds. Raises BenchError, with the end of each log, if it does not in time."""
        if not self.comes(look, seconds=seconds):
            raise BenchError(f"{self.system.name}: waited {seconds:.0f} s in vain: {what}\n{self.logs()}")

    def comes(self, look: Callable[[], bool], *, seconds: float) -> bool:
        """Whether the condition holds within that time; the wait ends at once when no pod runs."""
        until = time.monotonic() + seconds
        while not look():
            if time.monotonic() > until or not any(pod.is_running() for pod in self.pods.values()):
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def trains(self, index: int, *, world: int, since: float = 0.0) -> bool:
        """Whether that pod steps in a group of that size that was formed after `since`."""
        return steps.trains(self.steps(index), world=world, since=since)

    def start(self, pods: int, *, count: int) -> None:
        """Begin with these pods, and let them train for some steps."""
        self.add(*range(pods))
        self.write_membership(*range(pods))
        self.wait(f"{pods} pods train", lambda: all(self.trains(index, world=pods) for index in range(pods)))
        self.wait(f"{count} steps", lambda: len(self.steps(pods - 1)) >= count)

    def logs(self) -> str:
        """The end of each pod's output."""
        return "\n".join(f"--- {pod.name}\n{pod.said()[-1500:]}" for pod in self.pods.values())

    def _place(self, index: int) -> Place:
        return Place(
            folder=self.folder,
            index=index,
            uid=self._uids[index],
            port=self._port,
            status_port=self._status_ports.setdefault(index, free_port()),
            fewest=FEWEST,
            most=MOST,
            epoch=max(1, self._epoch),
            incarnation=self._incarnation,
        )

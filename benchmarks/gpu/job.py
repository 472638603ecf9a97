"""One training job of local pods. The report is its operator: it starts and ends pods, and writes the membership."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.systems import System, command_of, environ_of
from benchmarks.live.errors import BenchError
from benchmarks.local.places import HERE, Place, free_port, write_membership
from benchmarks.local.pods import Pod
from benchmarks.rescale.steps import Step, read

LOOK_SECONDS = 0.05
LAST_WORDS = 1500


class Job:
    """Pod 0 is the master. Ends all pods at the end of its context. `seconds` is the limit of each wait."""

    def __init__(self, system: System, machine: Machine, folder: Path, *, seconds: float) -> None:
        self.system, self.machine, self.folder, self._seconds = system, machine, folder, seconds
        self.pods: dict[int, Pod] = {}
        self._uids: dict[int, str] = {}
        self._ports: dict[int, int] = {}
        self._port, self._memberships, self._made = free_port(), 0, 0
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
            self._uids[index] = f"{index}-{self._made}"
            place = self._place(index)
            command = command_of(self.system, self.machine, self.folder)
            environ, log = environ_of(self.system, self.machine, place), self.folder / f"log-{place.name}.txt"
            self.pods[index] = Pod(place.name, command, environ=environ, log=log)

    def write_membership(self, *indices: int) -> None:
        """Name the pods that take part. torchrun accepts all pods that connect."""
        self._memberships += 1
        write_membership(map(self._place, indices), number=self._memberships)

    # -- observations -------------------------------------------------------------------------------------------------

    def steps(self, index: int) -> list[Step]:
        """The steps of the pod's processes."""
        return read(self.folder / f"steps-{self._place(index).name}.jsonl")

    def seen(self, index: int) -> list[dict[str, float]]:
        """Loss and memory of every tenth step."""
        file = self.folder / f"seen-{self._place(index).name}.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def is_warm(self, index: int) -> bool:
        """Whether that pod can take part at once."""
        return bool(self._status(index).get("warm"))

    def wait(self, what: str, look: Callable[[], bool]) -> None:
        """Wait until the condition holds. Raises BenchError, with the end of each log, if it does not in time."""
        until = time.monotonic() + self._seconds
        while not look():
            if time.monotonic() > until or not any(pod.is_running() for pod in self.pods.values()):
                raise BenchError(f"waited in vain: {what}\n{self._logs()}")
            time.sleep(LOOK_SECONDS)

    def wait_training(self, *indices: int, since: float) -> None:
        """Wait until all of these pods have made some steps in a group of exactly these, formed after `since`."""
        size = len(indices)
        self.wait(f"{size} pods train", lambda: all(self._trains(each, size, since) for each in indices))

    def _trains(self, index: int, world: int, since: float) -> bool:
        steps = self.steps(index)
        if len(steps) < STEADY_STEPS or steps[-1].world != world:
            return False
        own = [step for step in steps if step.group == steps[-1].group]
        return own[0].time > since and len(own) >= STEADY_STEPS

    def _status(self, index: int) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://{HERE}:{self._ports[index]}/status", timeout=1) as answer:
                status = json.load(answer)
        except (OSError, ValueError):
            return {}
        return status if isinstance(status, dict) else {}

    def _logs(self) -> str:
        return "\n".join(f"--- {pod.name}\n{pod.said()[-LAST_WORDS:]}" for pod in self.pods.values())

    def _place(self, index: int) -> Place:
        return Place(
            folder=self.folder,
            index=index,
            uid=self._uids[index],
            port=self._port,
            status_port=self._ports.setdefault(index, free_port()),
            fewest=max(1, self.machine.most - 1),
            most=self.machine.most,
        )


STEADY_STEPS = 20
"""The number of steps after which a group counts as training."""

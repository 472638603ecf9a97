"""The two jobs that train for real: started, resized, and their records read as they grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from tests.cluster.elastic import Training, trainer
from tests.cluster.lab import IMPORT_SECONDS, Object, Team, is_alive
from tests.simulate.facts import POOL
from tests.soak.records import Step, step_of
from tests.soak.site import REAL, Site

EPOCH_STEPS, PAUSE_SECONDS = 20, 0.1
"""An epoch takes some two seconds: planned changes wait for its end, and a fault that costs one is seen."""
CPU = "300m"
"""Without it the pods have no right to any on a busy machine, and a training stands still for minutes."""
LEAST, MOST = 1, 4
FIRST_SIZE = 3
FINISH_SECONDS = 300.0
"""Far more than a new master takes to import torch on a busy machine."""
RECENT = 500
"""Among so many lines read last is the last step, in whichever order files were read."""


class RealTraining(Training):
    """The job `toy` of the team `name`, and what its processes have written down so far."""

    def __init__(self, site: Site, name: str) -> None:
        self.name = name
        self.steps_so_far: list[Step] = []
        self._lock = Lock()
        self._read: dict[Path, int] = {}
        site.lab.kubectl("create", "namespace", name)
        super().__init__(Team(site.lab, name))

    def begins(self, *, node_loss_seconds: int) -> None:
        """Apply the job; `trains_at_all` waits until it trains."""
        words = ("--steps", str(EPOCH_STEPS), "--pause", str(PAUSE_SECONDS))
        template = trainer(*words, requests={"cpu": CPU})
        template["spec"]["nodeSelector"] = {POOL: REAL}
        self.applies(FIRST_SIZE, template, fewest=LEAST, recovery={"nodeLossSeconds": node_loss_seconds})

    def trains_at_all(self) -> None:
        """Until a group of any size has done a step."""
        self.team.wait("the first step", lambda: self.latest, seconds=IMPORT_SECONDS)

    def resize(self, rng: Random) -> str:
        """Another largest size."""
        now = (self.team.job() or {"spec": {"maxReplicas": 0}})["spec"]["maxReplicas"]
        most = rng.choice([size for size in range(LEAST, MOST + 1) if size != now])
        self.team.edit("toy", maxReplicas=most)
        return f"{self.name} gets maxReplicas {most}"

    def suspend(self, *, suspend: bool) -> None:
        """Suspend it, or let it go on."""
        self.team.edit("toy", suspend=suspend)

    def read(self) -> list[Step]:
        """All steps so far; reads what is new. From any thread."""
        with self._lock:
            for file in self.folder.glob("steps-*.jsonl"):
                self._read_on(file)
            return [*self.steps_so_far]

    def _read_on(self, file: Path) -> None:
        with file.open("rb") as opened:
            opened.seek(self._read.get(file, 0))
            whole, _, _ = opened.read().rpartition(b"\n")
        self._read[file] = self._read.get(file, 0) + len(whole) + bool(whole)
        self.steps_so_far += map(_step, whole.splitlines())

    @property
    def latest(self) -> Step | None:
        """The last step of any process."""
        self.read()
        return max(self.steps_so_far[-RECENT:], default=None)

    def live_pods(self) -> list[Object]:
        """Pods that run and stay."""
        return [
            pod for pod in self.team.lab.pods(self.name) if is_alive(pod) and pod["status"].get("phase") == "Running"
        ]

    def pod(self, rng: Random, role: str = "") -> str:
        """What follows the job's name in the name of a running pod of that role; "" if there is none."""
        names = [pod["metadata"]["name"].removeprefix("toy-") for pod in self.live_pods()]
        found = sorted(name for name in names if name.startswith(role))
        return rng.choice(found) if found else ""

    def finish(self) -> None:
        """It is told that it has trained enough, and ends well."""
        (self.folder / "enough").touch()
        self.team.wait_for("toy", "Succeeded", seconds=FINISH_SECONDS)

    def on_process(self, pod: str, do: Callable[[int], Any]) -> bool:
        """Do something to the pod's training process; False if it has none just now."""
        try:
            do(self.training_process(pod))
        except (AssertionError, KeyError, ProcessLookupError):
            return False
        return True


def _step(line: bytes) -> Step:
    return step_of(json.loads(line))

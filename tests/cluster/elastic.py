"""A job in Elastic mode that trains for real: what the tests do to it, and what its processes have written down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastic_api.job import PLURAL
from elastic_worker.contract import INJECT_FOLDER
from tests.cluster import processes
from tests.cluster.examples import give_files, give_volume
from tests.cluster.lab import IMPORT_SECONDS, Object, Team
from tests.cluster.templates import job, template

SCRIPT = Path(__file__).with_name("elastic_script.py")
CHECKPOINTS = "/checkpoints"
CHECKPOINT = f"{CHECKPOINTS}/checkpoint.pt"
EPOCHS = 2
"""So many epochs begun by a group are training."""
MANY_STEPS = 100


def trainer(
    *options: str, volumes: Iterable[Object] = (), mounts: Iterable[Object] = (), gpus: int = 1, **container: Any
) -> Object:
    """A pod template that runs the script with more `options`; with a `command` it runs that."""
    if "command" not in container:
        container["args"] = ["/script/train.py", CHECKPOINTS, *options]
    script = {"name": "script", "configMap": {"name": "script"}}
    checkpoints = {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}}
    own = [{"name": "script", "mountPath": "/script"}, {"name": "checkpoints", "mountPath": CHECKPOINTS}]
    pod = {"volumes": [script, checkpoints, *volumes]}
    return template(gpus=gpus, pod=pod, volumeMounts=[*own, *mounts], **container)


class Training:
    """The job `toy` of a team, one process per pod, and the volume it writes to."""

    def __init__(self, team: Team) -> None:
        self.team = team
        give_files(team, "script", train_py=SCRIPT)
        self.folder = give_volume(team)
        self.seen: dict[str, str] = {}

    # -- what is done to it --------------------------------------------------------------------------------------------

    def starts(self, pods: int, template: Object | None = None, **spec: Any) -> None:
        """Apply the job, on pods as `trainer` makes them, and wait until so many train."""
        self.applies(pods, template, **spec)
        self.trains(pods)

    def applies(
        self,
        pods: int,
        template: Object | None = None,
        *,
        fewest: int = 1,
        checkpoint: str = CHECKPOINT,
        runtime: Object | None = None,
        **spec: Any,
    ) -> None:
        """Apply the job, of at most so many pods."""
        made = job(
            min=fewest,
            max=pods,
            nprocPerNode=1,
            template=template or trainer(),
            runtime={"mode": "Elastic", **(runtime or {})},
            elasticity={"gracePeriodSeconds": 15, "checkpointPath": checkpoint},
            **spec,
        )
        self.team.apply(made)

    def ends(self) -> None:
        """Tell the script that it has trained enough, and wait for the job's good end."""
        (self.folder / "enough").touch()
        self.team.wait_for("toy", "Succeeded")

    def dies(self, *pods: str) -> None:
        """The pods' first processes are killed, and all others with them, as by a kernel without memory."""
        for pid in [self.launcher(pod) for pod in pods]:
            os.kill(pid, signal.SIGKILL)

    # -- what is seen of it --------------------------------------------------------------------------------------------

    def steps(self) -> list[Object]:
        """All steps of all processes, by time."""
        files = self.folder.glob("steps-*.jsonl")
        lines = [line for file in files for line in file.read_text().splitlines() if line.endswith("}")]
        return sorted(map(json.loads, lines), key=lambda step: step["time"])

    def last(self) -> tuple[int, int]:
        """The group that did the last step: its master's epoch and its generation."""
        steps = self.steps()
        return _group(steps[-1]) if steps else (0, 0)

    def trains(self, pods: int, *, after: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """Until a group of so many pods, formed after another one, has begun two epochs; returns which."""

        def found() -> tuple[int, int] | None:
            self.seen.update({uid: name for name, uid in self.team.uids().items()})
            steps = self.steps()
            if not steps or _group(steps[-1]) <= after:
                return None
            mine = [step for step in steps if _group(step) == _group(steps[-1])]
            ranks = {step["rank"] for step in mine if step["world"] == pods}
            begun = {step["epoch"] for step in mine}
            return _group(steps[-1]) if len(ranks) == pods and len(begun) >= EPOCHS else None

        group = self.team.wait(f"{pods} pods to train after group {after}", found, seconds=IMPORT_SECONDS)
        assert group is not None
        return group

    def goes_on(self) -> None:
        """Until the group as it is has done many more steps."""
        before = len(self.steps())
        self.team.wait("many more steps", lambda: len(self.steps()) >= before + MANY_STEPS)

    def epochs(self) -> list[int]:
        """The epochs that rank 0 began, in order of time."""
        return [step["epoch"] for step in self.steps() if (step["rank"], step["step"]) == (0, 0)]

    def repeated(self) -> int:
        """How many epochs were begun again; none may be left out."""
        epochs = self.epochs()
        assert epochs[:1] == [0], epochs
        assert all(after <= before + 1 for before, after in pairwise(epochs)), epochs
        return len(epochs) - len(set(epochs))

    def training_process(self, pod: str) -> int:
        """The pid on this machine of the pod's training process."""
        uid = self.team.uids()[f"toy-{pod}"]
        found = [pid for pid in processes.of_pods(self.team.lab.cluster, {uid}) if _writes(pid, f"/steps-{uid}.jsonl")]
        assert len(found) == 1, found
        return found[0]

    def launcher(self, pod: str) -> int:
        """The pid on this machine of the main container's first process."""
        uid = self.team.uids()[f"toy-{pod}"]
        found = [pid for pid in processes.of_pods(self.team.lab.cluster, {uid}) if _is_launcher(pid)]
        assert len(found) == 1, found
        return found[0]

    def nothing_left(self) -> None:
        """Delete the job; then no pod and no process of any pod is there that it ever had."""
        self.team.kubectl("delete", PLURAL, "toy", "--wait")
        self.team.wait("the pods to go", lambda: not self.team.lab.pods(self.team.name))
        cluster = self.team.lab.cluster
        self.team.wait("the processes to end", lambda: not processes.of_pods(cluster, set(self.seen)))


def _group(step: Object) -> tuple[int, int]:
    return step["master_epoch"], step["generation"]


def _writes(pid: int, file: str) -> bool:
    with contextlib.suppress(OSError):
        return any(str(link.readlink()).endswith(file) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _is_launcher(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return f"python3\0{INJECT_FOLDER}\0" in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def fill(file: Path) -> None:
    """Let the file take all the room there is on its disk."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as open_file:
        while True:
            open_file.write(b"x" * 4096)

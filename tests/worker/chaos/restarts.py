"""The same training as people have it today: torchrun, which starts all again from the last checkpoint."""

import os
import time
from dataclasses import dataclass

from elastic_operator.api.parse import parse_spec
from elastic_operator.build.environment import environment
from elastic_operator.build.wrapper import wrapped
from elastic_worker import contract
from tests.worker.chaos.operator import MASTER, Operator
from tests.worker.job.exactly_once import LibraryJob
from tests.worker.job.network import SERVICE
from tests.worker.job.pod import PYTHON, WORKER

MOST = 8
STUCK_SECONDS = 60.0
"""A group that has lost a peer without a word waits for it for half an hour, torch's own limit; here somebody looks."""
NUMBERED = 'echo "$1" >/proc/sys/kernel/ns_last_pid; shift; exec "$@"'
"""torchrun's agents know each other by host name and pid, and the host name is the same for all."""


class TorchrunJob(LibraryJob):
    """A LibraryJob whose pods run torchrun as the operator's Torchrun mode does."""

    incarnation = 1

    def _argv(self):
        torchrun = wrapped({"command": [PYTHON, "-m", "torch.distributed.run"]})["command"]
        return ["/bin/sh", "-c", NUMBERED, "pod", str(100 * (len(self.all_pods) + 1)), *torchrun, *self.command[1:]]

    def _pod(self, index, environ):
        return super()._pod(index, {**self._torchrun(index), **environ})

    def _torchrun(self, index):
        container = {"name": contract.MAIN_CONTAINER, "image": "toy", "args": ["train.py"]}
        template = {"spec": {"containers": [container]}}
        variables = environment(
            _Owner(),
            parse_spec({"spec": {"minReplicas": self.fewest, "maxReplicas": MOST, "template": template}}),
            role=contract.ROLE_WORKER if index else contract.ROLE_MASTER,
            index=max(0, index - 1),
            incarnation=self.incarnation,
            nnodes=(self.fewest, MOST),
            service_ip=SERVICE,
            port=contract.MASTER_PORT,
            gpu_resources=(),
        )
        told = {variable["name"]: variable["value"] for variable in variables if "value" in variable}
        # Our launcher gives scripts the library; elsewhere somebody installs it.
        return {**told, "PYTHONPATH": os.pathsep.join([self.environ["PYTHONPATH"], str(WORKER.parent)])}


@dataclass(frozen=True)
class _Owner:
    namespace: str = "chaos"
    name: str = "toy"
    uid: str = "job-uid"


class Restarts(Operator):
    """Where the master is gone, an agent has given up, or nothing moves, all pods are made anew."""

    def __init__(self, job, rng):
        super().__init__(job, rng)
        self._written, self._moved = 0, time.monotonic()

    def replace(self, index):
        """Another pod in its place; for a master all of them, as their agents met there."""
        if index == MASTER:
            self._begin_again()
        else:
            super().replace(index)

    def look(self):
        """Replace what has died, or all."""
        written = sum(file.stat().st_size for file in self.job.folder.glob("steps-*.jsonl"))
        if written != self._written:
            self._written, self._moved = written, time.monotonic()
        ended = [self.job.pods[index] for index in self.wanted if self.job.pods[index].code is not None]
        gave_up = any(pod.uid not in self.killed or pod is self.job.pods[MASTER] for pod in ended)
        if gave_up or time.monotonic() - self._moved > STUCK_SECONDS:
            self._begin_again()
        else:
            super().look()

    def _begin_again(self):
        for index in self.wanted:
            if self.job.pods[index].code is None and self.job.pods[index].uid not in self.killed:
                self.kill(index)
        self.job.incarnation += 1
        self._moved = time.monotonic()
        self.job.start(*sorted(self.wanted))

"""The same training under torchrun, which restarts all processes from the last checkpoint."""

import os
import time

from benchmarks.local.places import Place, torchrun_variables
from benchmarks.local.pods import numbered
from elastic_operator.build.wrapper import wrapped
from elastic_worker import contract
from tests.worker.chaos.operator import MASTER, Operator
from tests.worker.job.exactly_once import LibraryJob
from tests.worker.job.network import SERVICE
from tests.worker.job.pod import PYTHON, WORKER

MOST = 8
STUCK_SECONDS = 60.0
"""The limit for a group that has lost a silent peer: torch's is half an hour, so the tests look sooner."""


class TorchrunJob(LibraryJob):
    """A LibraryJob whose pods run torchrun as the operator's Torchrun mode does."""

    incarnation = 1

    def _argv(self):
        torchrun = wrapped({"command": [PYTHON, "-m", "torch.distributed.run"]})["command"]
        return numbered([*torchrun, *self.command[1:]], 100 * (len(self.all_pods) + 1) + 1)

    def _pod(self, index, environ):
        return super()._pod(index, {**self._torchrun(index), **environ})

    def _torchrun(self, index):
        place = Place(
            folder=self.folder,
            index=index,
            uid="",
            port=contract.MASTER_PORT,
            status_port=0,
            fewest=self.fewest,
            most=MOST,
            incarnation=self.incarnation,
        )
        # Our launcher gives scripts the library; here it must be installed.
        path = os.pathsep.join([self.environ["PYTHONPATH"], str(WORKER.parent)])
        return {**torchrun_variables(place, service_ip=SERVICE), "PYTHONPATH": path}


class Restarts(Operator):
    """Recreates all pods if the master has ended, an agent has given up, or the training stalls."""

    def __init__(self, job, rng):
        super().__init__(job, rng)
        self._written, self._moved = 0, time.monotonic()

    def replace(self, index):
        """Replace the pod; for a master replace all, since their agents met there."""
        if index == MASTER:
            self._begin_again()
        else:
            super().replace(index)

    def look(self):
        """Replace dead pods, or all."""
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

"""A job whose script uses a third-party trainer."""

import os
from pathlib import Path

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_worker import contract
from tests.worker.job.exactly_once import LibraryJob

SCRIPTS = Path(__file__).parent
QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


class TrainerJob(LibraryJob):
    """A job that grows and shrinks; `preload` is imported once for each pod."""

    def __init__(self, folder, script, *options, preload):
        command = ["--", str(SCRIPTS / script), str(folder), *map(str, options)]
        super().__init__(folder, command=command, environ={contract.ENV_PRELOAD: preload})
        self.environ = with_trainers(self.environ)


def with_trainers(environ):
    """The environment of a process that finds the trainers and torch."""
    trainers = torchtree.ensure(Progress(quiet=True), tree=torchtree.TRAINERS)
    return {**environ, **QUIET, "PYTHONPATH": os.pathsep.join([environ["PYTHONPATH"], str(trainers)])}

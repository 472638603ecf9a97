"""An example's job.yaml as pods of this machine: real launchers and torch; the test plays the operator."""

from __future__ import annotations

from elastic_api.template import nproc_of
from elastic_worker import contract
from tests.examples.folders import EPOCHS, WITH_TRAINERS, arguments, epochs_in, spec_of
from tests.examples.torchrun import EXAMPLES
from tests.worker.job.local import LocalJob
from tests.worker.trainers.jobs import with_trainers


class ExampleJob(LocalJob):
    """What is mounted in a pod lies in folders here: the script where it is kept, checkpoints in `checkpoints`."""

    def __init__(self, name, folder, *, checkpoints, epochs=EPOCHS, more=()):
        self.mounts = {"/workspace": EXAMPLES / name, "/checkpoints": checkpoints}
        checkpoints.mkdir(exist_ok=True)
        spec = spec_of(name)
        command = ["--", *map(self._here, arguments(name, epochs=str(epochs))), *more]
        environ = {
            contract.ENV_CHECKPOINT_PATH: self._here(spec.elasticity.checkpoint_path),
            contract.ENV_CHECKPOINT_COMPLETE: spec.elasticity.checkpoint_complete,
            contract.ENV_PRELOAD: ",".join(spec.runtime.preload),
        }
        nproc, grace = nproc_of(spec, contract.ROLE_WORKER), spec.elasticity.grace_period_seconds
        super().__init__(folder, command=command, checkpoint=False, environ=environ, nproc=nproc, grace=grace)
        if name in WITH_TRAINERS:
            self.environ = with_trainers(self.environ)

    def epochs(self):
        """What rank 0 has told: it is in the master's pod."""
        return epochs_in(self.pods[0].said())

    def trains(self, processes, *, after=-1):
        """Until three epochs on end, later than that one, were trained by so many; returns the last one."""

        def last():
            told = [each for each in self.epochs() if each[0] > after][-3:]
            return [size for _, size in told] == [processes] * 3 and told[-1][0]

        return self.wait(f"{processes} processes to train", last)

    def _here(self, word):
        """An argument as it is on this machine."""
        for mounted, folder in self.mounts.items():
            if word.startswith(f"{mounted}/"):
                return word.replace(mounted, str(folder), 1)
        return word

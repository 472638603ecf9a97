"""The common part of the adapters for Lightning and Hugging Face: their trainer's connection to the launcher.

Such a trainer forms torch's own process group from the variables that torchrun sets, and cannot change it. So before a
planned change all ranks write a checkpoint after the same step, and wait for their end; the script starts again in the
next group and resumes. Without our launcher this does nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import Any

from torch import distributed as dist

from elastic_worker import contract
from elastic_worker.library.groups import Formed
from elastic_worker.library.launcher_line import LauncherLine
from elastic_worker.library.place import find, local_rank
from elastic_worker.library.remaining import Remaining
from elastic_worker.library.reports import REPORT_SECONDS
from elastic_worker.protocol.process_orders import GroupPlace
from elastic_worker.protocol.process_reports import Hello, Joined, Progress, Stepped
from elastic_worker.protocol.reports import LastCheckpointStep, SavedTogether

log = logging.getLogger(__name__)


class TrainerLine:
    """The connection of one training process to the launcher, from the start of its training on."""

    def __init__(self) -> None:
        self._line: LauncherLine | None = None
        self._generation = 0
        self._has_stepped = False
        self._reported_at = 0.0
        self._remaining = Remaining()

    @property
    def is_elastic(self) -> bool:
        """Whether a launcher may change the group."""
        return self._line is not None

    def begin(self, *, step: int, newest: str | None, remedy: str) -> None:
        """Begin after `step`, in the formed group. Once per process.

        Raises ValueError if another group than the first is about to ignore the checkpoint `newest`.
        """
        path = os.environ.get(contract.ENV_LIBRARY, "")
        if not path or self._line is not None:
            return
        self._generation = find(os.environ).generation
        if self._generation > 1 and not step and newest:
            raise ValueError(f"training would begin anew though there is {newest}: {remedy}")
        self._line = LauncherLine(path, Hello(local_rank(os.environ), contract.RESTART), form=_form)
        self._line.enter(self._generation, None)
        self._line.send(Joined(self._generation))

    def boundary(self) -> bool:
        """Pass a boundary; returns whether all ranks must save now, and call `saved_together` after that.

        All ranks call this after the same steps. Raises PodLeaves.
        """
        verdict = self._line.boundary(_nothing) if self._line is not None else None
        return verdict is not None and verdict.save

    def report(self, *, step: int, epoch: float, loss: Any = None, steps: Any = None) -> None:
        """Report a step of `steps` in all; `step` counts from the beginning of the training, `loss` is a number or a
        tensor of one. A number of steps that is not positive and finite counts as unknown.
        """
        if self._line is None:
            return
        if not self._has_stepped:
            self._has_stepped = True
            self._line.send(Stepped(0.0, self._generation))
        now = time.monotonic()
        if now < self._reported_at + REPORT_SECONDS:
            return
        self._reported_at = now
        known_loss = None if loss is None else float(loss)
        percentage, remaining = self._remaining.look(step, steps, now)
        boundary = self._line.boundaries_passed
        self._line.send(
            Progress(step, epoch, boundary=boundary, loss=known_loss, percentage=percentage, remaining=remaining)
        )

    def saved(self, step: int) -> None:
        """Report a complete checkpoint of that step; called by the rank that wrote it."""
        if self._line is not None:
            self._line.send(LastCheckpointStep(step))

    def saved_together(self, step: int) -> None:
        """Report that this rank has saved for a change; wait for the other ranks and for the end. Raises PodLeaves."""
        assert self._line is not None, "there is no change without a launcher"
        barrier()
        log.info("step %d is saved; the processes start again in another group", step)
        if threading.current_thread() is threading.main_thread():
            # Trainers catch SIGTERM to save or to notify peers; both are done already.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._line.send(SavedTogether(True, self._line.bound))
        while True:
            self._line.wait(_nothing)


def barrier() -> None:
    """Wait for all ranks, if there are others."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def accumulation_steps(global_batch: int, per_device_batch: int) -> int:
    """Batches that each process accumulates for one step, so that a step has `global_batch` samples in any world.

    Raises ValueError if the present number of processes does not divide it: give the job's `sizes` accordingly.
    """
    world = find(os.environ).world
    each = world * per_device_batch
    if global_batch < 1 or per_device_batch < 1 or global_batch % each:
        message = (
            f"a global batch of {global_batch} cannot be made by {world} processes of {per_device_batch} samples each"
        )
        raise ValueError(f"{message}: choose a multiple of {each}, or allow the job other sizes only")
    return global_batch // each


def _form(place: GroupPlace, name: str) -> Formed:
    raise RuntimeError(f"{name}: a trainer's processes start again for generation {place.generation}")


def _nothing() -> None:
    """Save nothing, since one rank alone cannot save."""

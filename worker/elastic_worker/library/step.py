"""One step: the body of `with job.step(state) as step`. It counts as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from elastic_worker.library import groups, seeds
from elastic_worker.library.sampler import Micro, Share
from elastic_worker.library.state import State

if TYPE_CHECKING:
    from elastic_worker.library.job import Job


class StepError(RuntimeError):
    """The body of a step did not do what a step must; the message says what is missing."""


class Batch:
    """This rank's share of a global batch of `samples` samples."""

    def __init__(self, share: Share, job: Job) -> None:
        self.share, self._job = share, job
        self.samples = share.samples

    @property
    def micro(self) -> Iterator[Micro]:
        """The micro-batches, one after the other; only the last one's backward has the gradients added up over all.

        Random numbers depend on the micro-batch alone, not on who computes it.
        """
        state = self._job.current_state
        for micro in self.share.micro:
            for model in state.models if state is not None else ():
                model.set_sync(micro.last)
            for _, sharded in state.sharded if state is not None else ():
                sharded.set_requires_gradient_sync(micro.last)
            self._job.note_micro(micro)
            seeds.seed_for(micro)
            yield micro


class Step:
    """Made by `job.step(state)`."""

    def __init__(self, job: Job, state: State) -> None:
        self._job, self._state = job, state
        self._reduced = self._updated = False
        self._loss: Any = None
        self.committed = False
        """Whether the batch was applied; known after the block. If not, it comes again, with what is done after it."""
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __enter__(self) -> Step:
        self._job.begin_step(self)
        live = [buffer for model in self._state.models for buffer in model.module.buffers()]
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in live]
        return self

    def backward(self, loss: torch.Tensor) -> None:
        """`loss` is a mean over the micro-batch, times its weight. Gradients are those of one process with it all.

        What was given to job.state as `scaler` scales it here.
        """
        if self._state.scaler is not None:
            loss = self._state.scaler.scale(loss)
        world = self._job.world_size
        is_mean = world > 1 and not (self._state.models and self._state.models[0].adds_up)
        (loss * world if is_mean else loss).backward()
        self._job.check_group()
        self._reduced = self._job.is_last_micro

    def update(self, *, loss: torch.Tensor | float | None = None, clip_norm: float | None = None) -> None:
        """Have the optimizers take their step, and the scheduler; forget the gradients.

        `loss` is shown as the training's progress. With `clip_norm` gradients are clipped to that norm before.
        """
        state, scaler = self._state, self._state.scaler
        for optimizer in state.optimizers:
            if clip_norm is not None:
                if scaler is not None:
                    scaler.unscale_(optimizer)
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
            self.check_gradients()
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
            self._updated = True
            optimizer.zero_grad(set_to_none=True)
        if scaler is not None:
            scaler.update()
        if state.scheduler is not None:
            state.scheduler.step()
        self._loss = loss.detach() if isinstance(loss, torch.Tensor) else loss

    def check_gradients(self) -> None:
        """The gate: parameters change only by gradients that are complete. Raises StepError."""
        if not self._reduced:
            raise StepError(
                "the optimizer is about to step before step.backward() of the last micro-batch: "
                "loop over all of batch.micro, and call step.backward(loss) for each"
            )

    def note_update(self, *_: Any) -> None:
        """An optimizer steps; called by a hook, so that scripts may call optimizer.step() themselves."""
        self.check_gradients()
        self._updated = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        job = self._job
        job.end_step()
        if error is None:
            if not self._updated:
                raise StepError("the step ends without an update: call step.update(), or optimizer.step()")
            self._commit()
            return False
        if not (isinstance(error, Exception) and groups.is_communication_error(error) and job.has_lost_a_peer()):
            return False
        if self._updated:
            self._commit()
        else:
            self._undo()
        return True

    def _commit(self) -> None:
        self._job.commit(self._state, self._loss)
        self.committed = True

    def _undo(self) -> None:
        """As if it had not begun."""
        for buffer, before in self._buffers:
            buffer.copy_(before)
        for optimizer in self._state.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self._job.note_aborted()

"""One step: the body of `with job.step(state) as step`. It counts as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol

import torch

from elastic_worker.library import groups, seeds
from elastic_worker.library.sampler import MicroBatch, RankBatch
from elastic_worker.library.state import State


class StepError(RuntimeError):
    """The body of a step left out a call that every step needs; the message names it."""


class StepJob(Protocol):
    """The part of a job that its batches and steps use."""

    micro: MicroBatch | None

    @property
    def current_state(self) -> State | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def may_change_in_place(self) -> bool:
        """Whether a lost peer ends no process."""

    def begin_step(self, step: Step) -> None: ...
    def end_step(self) -> None: ...
    def check_group(self) -> None:
        """Raise if a reduction has failed or the group was aborted."""

    def collectives_begun(self) -> int | None:
        """Collectives begun so far; None without a group or if torch does not count them."""

    def has_lost_a_peer(self) -> bool:
        """Whether an error of communication means that a peer is lost."""

    def note_aborted(self) -> None:
        """Note that the batch was aborted and comes again."""

    def commit(self, state: State, loss: Any) -> None:
        """Count the batch as applied."""

    def compare_replicas(self) -> None:
        """Raises DivergedError if a rank has other weights."""


class Batch:
    """This rank's share of a global batch of `samples` samples."""

    def __init__(self, share: RankBatch, job: StepJob) -> None:
        self.share, self._job = share, job
        self.samples = share.samples
        self._seed = seeds.stable_hash("batch", job.seed, share.epoch, share.first)

    @property
    def micro(self) -> Iterator[MicroBatch]:
        """Yield the micro-batches one by one; only the backward of the last one reduces gradients over the ranks.

        Random numbers depend on the micro-batch alone, not on the rank that computes it.
        """
        state = self._job.current_state
        for micro in self.share.micro:
            for model in state.models if state is not None else ():
                model.set_sync(micro.last)
            for _, sharded in state.sharded if state is not None else ():
                sharded.set_requires_gradient_sync(micro.last)
            self._job.micro = micro
            seeds.seed_for(micro)
            yield micro
        self.draw_alike(after=True)

    def draw_alike(self, *, after: bool = False) -> None:
        """Let all ranks draw the same random numbers before their micro-batches, and others after these (102)."""
        seeds.set_seeds(self._seed ^ after)


class Step:
    """One step of the training, on one batch. `job.step(state)` makes it."""

    def __init__(self, job: StepJob, state: State) -> None:
        self._job, self._state = job, state
        self._reduced = False
        self._begun: set[str] = set()
        self._done: set[str] = set()
        self._before_backward: int | None = None
        self._before_update: int | None = None
        self._loss: Any = None
        self.committed = False
        """Whether the batch was applied; known after the block. If not, the batch comes again."""

    def __enter__(self) -> Step:
        self._job.begin_step(self)
        for model in self._state.models:
            model.rollback.begin()
        return self

    def backward(self, loss: torch.Tensor) -> None:
        """Backpropagate `loss`, the mean over the micro-batch times its weight, as one process with all samples would.

        The `scaler` given to job.state scales the loss here. Several losses may be passed one after the other.
        Raises StepError.
        """
        micro = self._job.micro
        self._check_backward(micro)
        if self._state.scaler is not None:
            loss = self._state.scaler.scale(loss)
        is_last = micro is not None and micro.last
        if is_last and not self._reduced:
            self._before_backward = self._job.collectives_begun()
        world = self._job.world_size
        # DDP, its hooks and FSDP2 all divide by the number of ranks (100).
        (loss * world if world > 1 else loss).backward()
        self._job.check_group()
        self._reduced = is_last

    def _check_backward(self, micro: MicroBatch | None) -> None:
        if micro is not None and not micro.is_weighed:
            raise StepError(
                "the loss was not multiplied by the weight of its micro-batch, which is its part of the global batch: "
                "step.backward(loss * micro.weight). A loss that needs no weight must be 0 where micro.weight is"
            )
        if self._begun and self._job.may_change_in_place:
            raise StepError(
                f"step.backward() after step() of {self._kinds(self._begun)}: if a pod were lost now, the batch would "
                "be half applied. Do all backwards first, or use elastic.init(in_place=False)"
            )

    def update(self, *, loss: torch.Tensor | float | None = None, clip_norm: float | None = None) -> None:
        """Step the optimizers and the scheduler, then clear the gradients.

        `loss` appears in the job's status. With `clip_norm` gradients are clipped to that norm before.
        """
        state, scaler = self._state, self._state.scaler
        for name, optimizer in state.optimizers.items():
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
            self._done.add(name)  # also if the scaler left it out
            optimizer.zero_grad(set_to_none=True)
        if scaler is not None:
            scaler.update()
        if state.scheduler is not None:
            state.scheduler.step()
        self._loss = loss.detach() if isinstance(loss, torch.Tensor) else loss

    def check_gradients(self) -> None:
        """Refuse an update by gradients that are not complete. Raises StepError."""
        if not self._reduced:
            raise StepError(
                "the optimizer is about to step before step.backward() of the last micro-batch: "
                "loop over all of batch.micro, and call step.backward(loss) for each"
            )
        hooked = any(model.has_own_hook for model in self._state.models)
        begun_before, is_countable = self._before_backward, not (self._begun or hooked)
        if is_countable and begun_before is not None and begun_before == self._job.collectives_begun():
            raise StepError(
                "the gradients were added up over no other rank: call what job.wrap returned, not the model that it "
                "was given"
            )

    def begin_update(self, name: str) -> None:
        """Note that an optimizer begins its step; called by a hook, so scripts may call optimizer.step() themselves."""
        self.check_gradients()
        self._begun.add(name)
        self._before_update = self._job.collectives_begun()

    def end_update(self, name: str) -> None:
        """Note that the optimizer has stepped. Raises StepError."""
        if self._job.may_change_in_place and self._before_update != self._job.collectives_begun():
            raise StepError(
                f"{self._kinds([name])} communicates in step(): if a pod were lost meanwhile, the batch would be half "
                "applied. Use one that does not, or elastic.init(in_place=False)"
            )
        self._done.add(name)

    def _kinds(self, names: Iterable[str]) -> str:
        return ", ".join(f"{name} ({type(self._state.optimizers[name]).__name__})" for name in sorted(names))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        job = self._job
        if error is None:
            try:
                if not self._done:
                    raise StepError("the step ends without an update: call step.update(), or optimizer.step()")
                self._commit()
                for model in self._state.models:
                    model.rollback.end()
                job.compare_replicas()
            finally:
                job.end_step()
            return False
        job.end_step()
        if not (isinstance(error, Exception) and groups.is_communication_error(error) and job.has_lost_a_peer()):
            return False
        if not self._begun and not self._done:
            self._undo()
        elif self._done == self._state.optimizers.keys():
            self._commit()
        else:
            raise StepError(
                f"a pod was lost while the optimizers stepped ({self._kinds(self._begun)} had begun), so the batch may "
                "be half applied in this process. It ends, and gets the state from another one or from the newest "
                "checkpoint. If a batch does not step all optimizers, run your own collectives before the first one "
                "steps"
            ) from error
        return True

    def _commit(self) -> None:
        self._job.commit(self._state, self._loss)
        self.committed = True

    def _undo(self) -> None:
        """Restore everything that the step has changed."""
        for model in self._state.models:
            model.rollback.undo()
        for optimizer in self._state.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        self._job.note_aborted()

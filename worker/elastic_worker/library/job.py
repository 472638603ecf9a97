"""The job as a training script sees it: made by `elastic.init()`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from elastic_worker import contract
from elastic_worker.library import ddp, groups, replicas, seeds
from elastic_worker.library.checkpoints import Checkpoints
from elastic_worker.library.evaluation import Evaluation, length_of
from elastic_worker.library.goodput import Goodput
from elastic_worker.library.handover import gather_objects
from elastic_worker.library.loader import Loader
from elastic_worker.library.regrouping import Regrouping
from elastic_worker.library.reports import Reports
from elastic_worker.library.sampler import MicroBatch, RankBatch, Sampler
from elastic_worker.library.seeds import stable_hash
from elastic_worker.library.state import State, StateError
from elastic_worker.library.step import Batch, Step, StepError
from elastic_worker.protocol.process_orders import GroupPlace

log = logging.getLogger(__name__)


class NotFormedError(RuntimeError):
    """Rank, world size and generation are known only after job.restore has formed a group."""


def init(
    *,
    checkpoints: str | Path | None = None,
    backend: str | None = None,
    in_place: bool | None = None,
    keep: int = 2,
    compare_every: int = 100,
) -> Job:
    """Return the job that this process takes part in; `job.restore` forms the group.

    The process may be started by the operator's launcher, torchrun or srun, or alone. Checkpoints go to a folder that
    all pods see; the newest `keep` are kept. `backend` is gloo, or nccl if there is a GPU. Groups of gloo change in
    place; others change by a restart of all processes from a checkpoint of that moment. With `in_place=False` all
    groups restart, and the group is formed here, as `fully_shard` needs it. Every `compare_every` steps (0: never) all
    ranks check that they had the same weights at the last comparison. Raises SurroundingsError.
    """
    return Job(
        checkpoints=checkpoints, backend=backend or "", in_place=in_place, keep=keep, compare_every=compare_every
    )


class Job:
    """The job as one training process sees it. See docs/library.md."""

    def __init__(
        self, *, checkpoints: str | Path | None, backend: str, in_place: bool | None, keep: int, compare_every: int
    ) -> None:
        self.current_state: State | None = None
        folder = str(Path(checkpoints).absolute()) if checkpoints else ""
        self._regrouping = Regrouping(backend=backend, in_place=in_place, environ=os.environ, checkpoints=folder)
        self._regrouping.load, self._regrouping.save = self._load, self._save_now
        self._regrouping.save_together = self._save_together
        self._regrouping.entered = self._entered
        self._epoch_begun = 0
        self._checkpoints = Checkpoints(checkpoints, keep=keep) if checkpoints else None
        self._on_regroup: list[Callable[[Job], None]] = []
        self._active: Step | None = None
        self._batch: Batch | None = None
        self._comparison = replicas.Comparison(compare_every)
        self.micro: MicroBatch | None = None
        """The micro-batch that is being computed."""
        self._evaluated = 0
        self._job_uid = os.environ.get(contract.ENV_JOB_UID, "")
        self._goodput = Goodput()
        self._reports = Reports(self._regrouping.line, self._goodput)

    # -- rank and group ------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The device that this process computes on."""
        return self._regrouping.device

    @property
    def local_rank(self) -> int:
        """Index of this process among those of its pod, from 0."""
        return self._regrouping.local_rank

    @property
    def rank(self) -> int:
        """Rank in the present group; it may change after each step. Raises NotFormedError before job.restore."""
        return self._in_group("rank").rank

    @property
    def world_size(self) -> int:
        """Processes of the present group. Raises NotFormedError before job.restore."""
        return self._in_group("world_size").world

    @property
    def generation(self) -> int:
        """Number of the present group, from 1. Raises NotFormedError before job.restore."""
        return self._in_group("generation").generation

    @property
    def step_count(self) -> int:
        """Global batches applied so far."""
        return self.current_state.step if self.current_state else 0

    def on_regroup(self, call: Callable[[Job], None]) -> None:
        """Call `call(job)` in each new group, the first included, once the state is there."""
        self._on_regroup.append(call)

    def _in_group(self, what: str) -> GroupPlace:
        if self._regrouping.place is None:
            raise NotFormedError(f"job.{what} is known from job.restore(state) on: the group is formed there")
        return self._regrouping.place

    def _state_now(self, what: str) -> State:
        if self.current_state is None or self._regrouping.place is None:
            raise NotFormedError(f"{what} comes after job.restore(state)")
        return self.current_state

    # -- setting up ----------------------------------------------------------------------------------------------------

    def wrap(self, model: torch.nn.Module, **options: Any) -> ddp.ElasticDDP:
        """Wrap the model in DistributedDataParallel with these options, on this process's device. Raises TypeError."""
        ddp.check_supported(model, ())
        if ddp.is_fsdp(model):
            raise TypeError("the model is sharded by fully_shard already: use it as it is, without job.wrap")
        wrapped = ddp.ElasticDDP(model.to(self.device), **options)
        self._regrouping.models.append(wrapped)
        return wrapped

    def state(self, **objects: Any) -> State:
        """Name everything that makes up the state of the training. Raises StateError, TypeError.

        The sampler must be among them. step.update() steps the object called `scheduler`; `scaler` scales losses.
        """
        state = State(objects)
        for model in self._regrouping.models:
            ddp.check_supported(model.module, state.optimizers.values())
        for name, optimizer in state.optimizers.items():
            optimizer.register_step_pre_hook(partial(self._begin_update, name))
            optimizer.register_step_post_hook(partial(self._end_update, name))
        return state

    def restore(self, state: State) -> None:
        """Form or join the group, and load the state from a peer that trains, else from the newest checkpoint.

        Raises CheckpointError if there are checkpoints and none can be used, StateError if one does not fit,
        if none could hold this state, or if changes need a folder for checkpoints, TypeError for hooks whose
        state newcomers would lack.
        """
        if self._checkpoints is None and self._regrouping.needs_checkpoints:
            raise StateError(
                "a change of size starts the processes again from a checkpoint, and there is no folder for it: "
                "give one that all pods see, elastic.init(checkpoints=...)"
            )
        for model in state.models if self.may_change_in_place else ():
            model.check_hooks(state.objects.values())
        if self._checkpoints is not None:
            state.refuse_what_no_checkpoint_takes()
        self.current_state = state
        self._goodput.spend("startup")
        self._regrouping.take_part(state)
        self._goodput.spend("regroup")
        idle = state.data.idle_ranks(self.world_size)
        if idle and self.rank == 0:
            text = "%d of %d processes have nothing to do: a global batch has too few micro-batches, make them smaller"
            log.warning(text, idle, self.world_size)

    def _entered(self) -> None:
        self._begin_epoch(self._in_group("epoch"))
        self._reports.entered(self._in_group("generation").generation)
        for call in self._on_regroup:
            call(self)

    def _begin_epoch(self, place: GroupPlace) -> None:
        """Fence earlier masters before the first step: the writer leaves its epoch where they look."""
        if self._checkpoints is not None and place.rank == 0 and place.epoch > self._epoch_begun:
            self._epoch_begun = place.epoch
            line = self._regrouping.line
            obeyed = (lambda: line.master) if line is not None else (lambda: 0)
            self._checkpoints.begin(self._job_uid, epoch=place.epoch, obeyed=obeyed)

    # -- training ------------------------------------------------------------------------------------------------------

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the numbers of the epochs that are left, from the one that the state is in."""
        data = self._state_now("job.epochs").data
        self._reports.epochs = count
        while data.epoch < count:
            epoch = data.epoch
            self.draw_alike("epoch")
            yield epoch
            if data.epoch == epoch:
                data.next_epoch()

    def batches(self, data: Sampler, loader: Loader | None = None) -> Iterator[Batch]:
        """Yield the rest of the epoch's batches. A batch whose step was aborted comes again."""
        state = self._state_now("job.batches")
        if data is not state.data:
            raise StateError("job.batches needs the sampler that was given to job.state")
        shares: Iterator[RankBatch] | None = None
        epoch = data.epoch
        while (share := data.share(self.rank, self.world_size)) is not None:
            self._goodput.spend("other")
            if self._regrouping.pass_boundary():
                self._goodput.spend("regroup")
                shares = None
                share = data.share(self.rank, self.world_size)
                if share is None or data.epoch != epoch:
                    # The state came from a rank that has finished this epoch and waits at the next boundary.
                    self._regrouping.free_boundary()
                    return
            if loader is not None:
                shares = shares or loader.shares(self.rank, self.world_size)
                share = next(shares)
            step, self._batch = state.step, Batch(share, self)
            self._batch.draw_alike()
            yield self._batch
            if state.step == step:
                shares = None
                if not self._regrouping.aborted:
                    raise StepError("a batch was not applied: use `with job.step(state) as step` for each batch")

    def loader(self, dataset: Any, **options: Any) -> Loader:
        """Return a DataLoader for job.batches(state.data, loader); the data is in `micro.data`. See Loader."""
        return Loader(dataset, self._state_now("job.loader").data, **options)

    def step(self, state: State) -> Step:
        """Return the context of one step: `with job.step(state) as step`."""
        if state is not self.current_state:
            raise StateError("job.step needs the state that was given to job.restore")
        return Step(self, state)

    @property
    def seed(self) -> int:
        """Seed of the sampler."""
        return self._state_now("job.batches").data.seed

    def draw_alike(self, where: str, *numbers: int) -> None:
        """Let all ranks draw the same random numbers from here on (102). See EvaluationJob."""
        seeds.set_seeds(stable_hash(where, self.seed, self._state_now("job.epochs").data.epoch, *numbers))

    def begin_step(self, step: Step) -> None:
        """See StepJob."""
        if self._batch is None or self._active is not None:
            raise StepError("job.step is for the body of `for batch in job.batches(...)`, once for each batch")
        self._active, self.micro = step, None
        if self._regrouping.line is not None:
            self._regrouping.line.step_began = time.monotonic()

    def end_step(self) -> None:
        """See StepJob."""
        self._active = None
        if self._regrouping.line is not None:
            self._regrouping.line.step_began = None

    def check_group(self) -> None:
        """Raise if a reduction has failed or the group was aborted. See StepJob."""
        if self._regrouping.formed is not None:
            self._regrouping.formed.calls.check()

    def collectives_begun(self) -> int | None:
        """Collectives begun so far; None without a group or if torch does not count them. See StepJob."""
        return groups.collectives_begun() if self._regrouping.formed is not None else None

    @property
    def may_change_in_place(self) -> bool:
        """Whether this kind of group changes in place in Elastic mode, so that a lost peer ends no process."""
        return self._regrouping.change_mode == contract.IN_PLACE

    def has_lost_a_peer(self) -> bool:
        """Whether an error of communication means that a peer is lost. See StepJob."""
        return self._regrouping.has_lost_a_peer()

    def note_aborted(self) -> None:
        """Note that the batch was aborted and comes again. See StepJob."""
        self._regrouping.aborted = True
        self._goodput.spend("lost")

    def commit(self, state: State, loss: Any) -> None:
        """Count the batch as applied. See StepJob."""
        assert self._batch is not None
        state.data.commit(self._batch.share)
        state.step += 1
        state.evaluations.clear()
        self._batch, self._evaluated = None, 0
        self._goodput.step_done()
        self._reports.committed(state, loss, self._checkpoints)

    def compare_replicas(self) -> None:
        """Check every `compare_every` steps that all ranks had the same weights. Raises DivergedError."""
        state, formed = self._state_now("job.step"), self._regrouping.formed
        if formed is not None and formed.world > 1 and state.models and self._comparison.is_due(state.step):
            self._comparison.compare(formed, replicas.fingerprint(state.replicas()), step=state.step)

    def _begin_update(self, name: str, *_: Any) -> None:
        if self._active is not None:
            self._active.begin_update(name)

    def _end_update(self, name: str, *_: Any) -> None:
        if self._active is not None:
            self._active.end_update(name)

    # -- beside training -----------------------------------------------------------------------------------------------

    def eval_batches(self, data: Any, batch_size: int = 256) -> Evaluation:
        """Return an evaluation of a data set, or of a number of samples. See Evaluation."""
        state = self._state_now("job.eval_batches")
        self._evaluated += 1
        number = self._evaluated

        def earlier_result() -> dict[str, float] | None:
            return state.evaluations[number - 1] if number <= len(state.evaluations) else None

        return Evaluation(self, length_of(data), batch_size, earlier_result)

    def free_boundary(self) -> None:
        """Do not count the next boundary: the other ranks wait there already. See EvaluationJob."""
        self._regrouping.free_boundary()

    def pass_boundary(self) -> bool:
        """See EvaluationJob."""
        return self._regrouping.pass_boundary()

    def share_buffers(self) -> bool:
        """Give all ranks the running statistics of rank 0; False if the group was lost. See EvaluationJob."""
        formed, state = self._regrouping.formed, self._state_now("job.eval_batches")
        if formed is None:
            return True
        try:
            for buffer in (buffer for model in state.models for buffer in model.module.buffers()):
                formed.calls.wait(dist.broadcast(buffer, 0, group=formed.group, async_op=True))
            for model in state.models:
                model.rollback.forget()
        except Exception as error:
            if not (groups.is_communication_error(error) and self.has_lost_a_peer()):
                raise
            return False
        return True

    def add_up(self, sums: dict[str, float]) -> dict[str, float] | None:
        """Sum over all ranks; None if the group was lost meanwhile. See EvaluationJob."""
        total = dict(sums)
        if self._regrouping.formed is not None:
            try:
                gathered: list[dict[str, float]] = gather_objects(self._regrouping.formed, sums)
            except Exception as error:
                if not (groups.is_communication_error(error) and self.has_lost_a_peer()):
                    raise
                return None
            names = {name for each in gathered for name in each}
            total = {name: sum(each.get(name, 0.0) for each in gathered) for name in sorted(names)}
        self._state_now("job.eval_batches").evaluations.append(total)
        return total

    def checkpoint(self, state: State, *, wait: bool = False) -> None:
        """Save a checkpoint in the background; with `wait`, return when it is durable.

        Rank 0 writes. A full disk shows in the job's status and ends nothing. Raises StateError without a folder.
        """
        if self._checkpoints is None:
            raise StateError("job.checkpoint needs a folder that all pods see: elastic.init(checkpoints=...)")
        if state.saved_step == state.step:
            return
        self._goodput.spend("other")
        state.saved_step = state.step
        if self.rank == 0 or state.is_sharded:
            self._write(state, wait=wait)
        self._goodput.spend("checkpoint")

    def _write(self, state: State, *, wait: bool) -> None:
        assert self._checkpoints is not None
        place = self._in_group("checkpoint")
        order = (state.epoch_base + place.epoch, place.generation)
        meta = {"world": place.world, "job": self._job_uid, "base": state.epoch_base}
        group = dist.group.WORLD if state.is_sharded else None
        self._checkpoints.save(state.capture(), step=state.step, order=order, meta=meta, wait=wait, group=group)

    def _save_now(self) -> None:
        """Save at once, since this process is about to end and no other one has the state."""
        state = self.current_state
        if self._checkpoints is not None and state is not None and self._regrouping.place is not None:
            self._write(state, wait=True)

    def _save_together(self) -> None:
        """Save with all ranks after the same step, since they are about to be restarted."""
        state = self.current_state
        if self._checkpoints is not None and state is not None and (self.rank == 0 or state.is_sharded):
            self._write(state, wait=True)

    def _load(self) -> None:
        state = self.current_state
        if self._checkpoints is None or state is None:
            return
        together = state.is_sharded and dist.is_initialized()
        checkpoint = self._checkpoints.newest(dist.group.WORLD if together else None)
        if checkpoint is None:
            return
        same_job = checkpoint.meta.get("job") == self._job_uid
        state.apply(self._checkpoints.load(checkpoint, state.capture() if state.is_sharded else None))
        state.epoch_base = checkpoint.meta.get("base", 0) if same_job else checkpoint.order[0]
        log.info("step %d is restored from %s", checkpoint.step, checkpoint.path)

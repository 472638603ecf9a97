"""The whole state of a training: it is handed to newcomers, written to checkpoints and loaded from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from elastic_worker.library import checkpoint_state
from elastic_worker.library.ddp import ElasticDDP, is_fsdp
from elastic_worker.library.handover import mark_of
from elastic_worker.library.sampler import Sampler

STEPPED_WITH_UPDATE = "scheduler"
SCALER = "scaler"
MOST_EVALUATIONS = 1000
"""The most evaluations between two steps."""


class StateError(ValueError):
    """An object given to job.state, or found in a checkpoint, cannot be used; the message names it."""


class State:
    """The state of a training, made by `job.state(...)`.

    `objects` are by the names under which they were given. `data` is the sampler among them, `models` are those that
    job.wrap made, `sharded` those that fully_shard has split among the ranks.

    `step` counts the global batches that were applied; `saved_step` is the last step for which a checkpoint was
    requested; `evaluations` are the results of the evaluations since the last step. `epoch_base` is added to the
    master's epoch in checkpoints if an older job has written to the same folder.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self.objects = dict(objects)
        for name, each in self.objects.items():
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                lacking = f"{type(each).__name__} has no state_dict and load_state_dict"
                raise StateError(f"job.state({name}=...): {lacking}; wrap it in an object that has both")
        samplers = [each for each in self.objects.values() if isinstance(each, Sampler)]
        named = self.objects.items()
        self.sharded = [(name, each) for name, each in named if isinstance(each, torch.nn.Module) and is_fsdp(each)]
        if len(self.sharded) > 1:
            raise StateError(f"job.state() takes one model that is sharded by fully_shard, not {len(self.sharded)}")
        if len(samplers) != 1:
            raise StateError(f"job.state() needs one elastic.Sampler (as data=...), not {len(samplers)}")
        self.data: Sampler = samplers[0]
        self.data.even_shares = self.is_sharded
        self.models: list[ElasticDDP] = [each for each in self.objects.values() if isinstance(each, ElasticDDP)]
        self._check_parameters()
        self.step = 0
        self.saved_step = -1
        self.epoch_base = 0
        self.evaluations: list[dict[str, float]] = []

    @property
    def is_sharded(self) -> bool:
        """Whether no rank holds the whole state."""
        return bool(self.sharded)

    @property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """All optimizers by name, in the order in which they were given."""
        return {name: each for name, each in self.objects.items() if isinstance(each, torch.optim.Optimizer)}

    @property
    def scaler(self) -> Any:
        """The gradient scaler, None without one."""
        return self.objects.get(SCALER)

    @property
    def scheduler(self) -> Any:
        """The learning-rate scheduler, None without one."""
        return self.objects.get(STEPPED_WITH_UPDATE)

    @property
    def progress(self) -> int:
        """Grows with each step, and with each evaluation between two steps."""
        return self.step * MOST_EVALUATIONS + min(len(self.evaluations), MOST_EVALUATIONS - 1)

    def mark(self) -> int:
        """A cheap checksum of the parameters."""
        return mark_of([p.detach() for model in self.models for p in model.module.parameters()])

    def replicas(self) -> list[torch.Tensor]:
        """The tensors that must be equal on all ranks, bit by bit."""
        return [
            parameter.detach()
            for model in self.models
            for name, parameter in model.module.named_parameters()
            if name not in model.parameters_left_alone
        ]

    def _check_parameters(self) -> None:
        """Refuse parameters in an optimizer whose gradients are not reduced over the ranks. Raises StateError."""
        shared = [model.module for model in self.models] + [model for _, model in self.sharded]
        reduced = {id(parameter) for model in shared for parameter in model.parameters()}
        for name, optimizer in self.optimizers.items():
            for parameter in (each for group in optimizer.param_groups for each in group["params"]):
                if parameter.requires_grad and id(parameter) not in reduced:
                    raise StateError(f"job.state({name}=...): {self._why_not_shared(parameter)}")

    def _why_not_shared(self, parameter: torch.Tensor) -> str:
        alone = "so each rank would train it alone"
        for name, each in self.objects.items():
            for key, own in each.named_parameters() if isinstance(each, torch.nn.Module) else ():
                if own is parameter:
                    return (
                        f"its parameter {key} is of {name}, which is not wrapped, {alone}: pass {name}=job.wrap({name})"
                    )
        shape = tuple(parameter.shape)
        return (
            f"its parameter of shape {shape} belongs to no model of job.state, {alone}: make it part of a module, and "
            "give job.state what job.wrap(module) returns"
        )

    # -- capture and apply ---------------------------------------------------------------------------------------------

    def capture(self) -> dict[str, Any]:
        """The state as nested dicts of tensors and plain values. The tensors are the objects' own, not copies."""
        objects = {name: _bare(each).state_dict() for name, each in self.objects.items()}
        for name, model in self.sharded:
            objects[name] = get_model_state_dict(model)
            for key, optimizer in self.optimizers.items():
                objects[key] = get_optimizer_state_dict(model, optimizer)
        return {"objects": objects, "progress": {"step": self.step}}

    def refuse_what_no_checkpoint_takes(self) -> None:
        """Check that the state could be saved and loaded, without copying a tensor. Raises StateError.

        A save that fails does not end the training, which would then go on without any checkpoint. Each object is asked
        for its state_dict as `capture` does, which for a sharded model makes the optimizers take a first step.
        """
        for name, each in self.objects.items():
            _refuse_unfit(name, _bare(each))

    def capture_for_peer(self) -> dict[str, Any]:
        """Capture the state and the further values that a peer needs in the middle of an epoch."""
        buffers = {f"{name}.{key}": value for name, key, value in self._unsaved_buffers()}
        progress = {
            "step": self.step,
            "saved_step": self.saved_step,
            "evaluations": self.evaluations,
            "epoch_base": self.epoch_base,
        }
        return {**self.capture(), "progress": progress, "buffers": buffers}

    def existing(self) -> dict[str, Any]:
        """The part of `capture_for_peer` whose tensors may be written to: models and optimizers."""
        kinds = (torch.nn.Module, torch.optim.Optimizer)
        bare = ((name, _bare(each)) for name, each in self.objects.items())
        objects = {name: each.state_dict() for name, each in bare if isinstance(each, kinds)}
        return {"objects": objects, "buffers": {f"{name}.{key}": value for name, key, value in self._unsaved_buffers()}}

    def apply(self, captured: Mapping[str, Any]) -> None:
        """Load a captured state. Raises StateError if it is that of another model, optimizer or data set."""
        saved, present = set(captured["objects"]), set(self.objects)
        if saved != present:
            difference = f"it has {_names(saved - present)} that job.state() lacks, and lacks {_names(present - saved)}"
            raise StateError(f"the state does not fit: {difference}; give job.state() the same names as then")
        for name, model in self.sharded:
            set_model_state_dict(model, captured["objects"][name])
            for key, optimizer in self.optimizers.items():
                set_optimizer_state_dict(model, optimizer, captured["objects"][key])
        apart = {*dict(self.sharded), *(self.optimizers if self.sharded else ())}
        for name, each in self.objects.items():
            if name not in apart:
                _load(name, _bare(each), captured["objects"][name])
        for name, key, value in self._unsaved_buffers():
            if f"{name}.{key}" in captured.get("buffers", {}):
                value.copy_(captured["buffers"][f"{name}.{key}"])
        progress = captured["progress"]
        self.step = int(progress["step"])
        self.saved_step = int(progress.get("saved_step", self.step))
        self.epoch_base = int(progress.get("epoch_base", self.epoch_base))
        self.evaluations = [dict(result) for result in progress.get("evaluations", [])]

    def _unsaved_buffers(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Buffers that modules keep out of their state_dict."""
        for name, each in self.objects.items():
            module = _bare(each)
            if isinstance(module, torch.nn.Module):
                saved = module.state_dict().keys()
                yield from ((name, key, buffer) for key, buffer in module.named_buffers() if key not in saved)


def _bare(each: Any) -> Any:
    return each.module if isinstance(each, ElasticDDP) else each


def _refuse_unfit(name: str, each: Any) -> None:
    try:
        captured = each.state_dict()
    except (RuntimeError, ValueError):
        return  # its state_dict asks for the rank, or communicates, before the group is formed
    try:
        tensors, structure = checkpoint_state.take_apart(captured)
        checkpoint_state.put_together(structure, tensors)
    except checkpoint_state.CheckpointStateError as error:
        kind = type(each).__name__
        raise StateError(
            f"job.state({name}=...): no checkpoint can hold the state_dict() of {kind}: {error}"
        ) from error


def _load(name: str, into: Any, captured: Any) -> None:
    try:
        into.load_state_dict(captured)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        problem = f"the state of {name!r} does not fit: {error}"
        raise StateError(f"{problem}\nIt is another run's: choose another folder for checkpoints") from error


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"

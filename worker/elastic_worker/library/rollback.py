"""Restores a model's buffers after an aborted step.

Each buffer has a copy that is kept from step to step. At its beginning, a step renews the copies of modules that were
written to since. torch counts writes to a tensor, but not all of them: it misses BatchNorm's writes to its running
statistics, and those through `.data`, NumPy or a CUDA graph. It counts DDP's broadcast although that changes nothing.
Therefore:

1. A module counts as written to as a whole: BatchNorm's `num_batches_tracked` stands for its running statistics.
2. DDP's broadcast is left out of the count. As it may bring what another rank has written, a module is copied once more
   in the step after one that it was copied for.
3. In the first steps, and at intervals later, bits are compared with the copies. A module with a write that was not
   counted is copied in each later step.
4. If such a write is found only when a step is undone, it may belong to this step or to an earlier one. RollbackError
   is raised, and the training continues from a checkpoint, since the write could otherwise be lost or done twice.

Known limit: an uncounted write can be undone by mistake. This needs a module that is first written to after
FIRST_STEPS, and whose next, counted write is in a step that is aborted, before the next comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

FIRST_STEPS = 3
COMPARE_EVERY = 100
"""Interval in steps at which bits are compared."""
Buffers = dict[str, "torch.Tensor | None"]


class RollbackError(RuntimeError):
    """A buffer cannot be restored with certainty."""


@dataclass
class _Kept:
    """The copies of one module's buffers. `buffers` are torch's own; `objects`, `writes` and `copies` are by name.

    `is_fresh`: they were copied at the beginning of the present step. `always`: they are copied in each step.
    `is_settled`: no write was counted in the step before.
    """

    name: str
    buffers: Buffers
    objects: Buffers = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    copies: dict[str, torch.Tensor] = field(default_factory=dict)
    is_fresh: bool = False
    is_settled: bool = False
    always: bool = False

    def begin(self) -> None:
        """Decide at the beginning of a step whether to copy this module's buffers."""
        was_settled, self.is_settled = self.is_settled, self.is_as_counted()
        self.is_fresh = self.always or not (was_settled and self.is_settled)

    def is_as_counted(self) -> bool:
        """Whether the buffers are the same objects as when they were copied, and no write was counted since."""
        if self.buffers.keys() != self.objects.keys():
            return False
        for name, buffer in self.buffers.items():
            if buffer is not self.objects[name] or (buffer is not None and _writes(buffer) != self.writes[name]):
                return False
        return True

    def note(self) -> None:
        """Remember the objects and their counts of writes."""
        self.writes = {name: _writes(buffer) for name, buffer in self.buffers.items() if buffer is not None}

    def make_copies(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the pairs (copy, buffer) whose old copy fits and is to be overwritten; copy the other buffers here."""
        for name, buffer in self.buffers.items():
            if buffer is None:
                continue
            copy = self.copies.get(name)
            if copy is not None and _fits(copy, buffer) and (buffer is self.objects.get(name) or _has_bits(buffer)):
                yield copy, buffer
            else:
                self.copies[name] = buffer.detach().clone()
                self.always = self.always or not _has_bits(buffer)
        self.objects = dict(self.buffers)
        self.note()

    def changed_names(self) -> list[str]:
        """Names of the buffers whose bits differ from their copies."""
        named = ((name, each) for name, each in self.objects.items() if each is not None)
        return [name for name, each in named if not (_has_bits(each) and _same_bits(each, self.copies[name]))]


class Rollback:
    """Restores the buffers of `module`. For each step call `begin`, and then `end` or `undo`."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._kept: dict[int, _Kept] = {}
        self._steps = 0

    def forget(self) -> None:
        """Treat every buffer as written to, as in a new group."""
        self._steps = 0
        for kept in self._kept.values():
            kept.objects = {}

    def begin(self) -> None:
        """Copy the buffers that were written to since their last copy."""
        previous, self._kept = self._kept, {}
        to_copy = []
        for module in self._module.modules():
            if buffers := module._buffers:
                kept = previous.get(id(buffers))
                if kept is None or kept.buffers is not buffers:
                    kept = _Kept(type(module).__name__, buffers)
                self._kept[id(buffers)] = kept
                kept.begin()
                if kept.is_fresh:
                    to_copy.append(kept)
        pairs = [pair for kept in to_copy for pair in kept.make_copies()]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_(*map(list, zip(*pairs)))
        self._steps += 1

    def end(self) -> None:
        """End a step that counts."""
        if self._steps <= FIRST_STEPS or self._steps % COMPARE_EVERY == 0:
            for kept in self._kept.values():
                kept.always = kept.always or (kept.is_as_counted() and bool(kept.changed_names()))

    def undo(self) -> None:
        """Restore the buffers: the same objects with the same bits. Raises RollbackError."""
        for kept in self._kept.values():
            is_counted = kept.is_fresh or not kept.is_as_counted()
            changed = kept.changed_names()
            if changed and not is_counted:
                raise RollbackError(
                    f"a pod was lost in this step, and it is not known whether buffer {changed[0]!r} of {kept.name} "
                    "was written to in it or before: torch does not count writes through .data, NumPy or a CUDA graph. "
                    f"Use module.{changed[0]}.copy_(...) instead. This process ends, and the training goes on from a "
                    "peer that knows, or from the newest checkpoint"
                )
            kept.buffers.update(kept.objects)
            for name in changed:
                _put_back(kept.objects[name], kept.copies[name])

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """Do not count writes within: DDP's broadcast usually writes the same values."""
        unwritten = [kept for kept in self._kept.values() if kept.is_as_counted()]
        yield
        for kept in unwritten:
            kept.note()


def _fits(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    return bool((copy.shape, copy.dtype, copy.device) == (buffer.shape, buffer.dtype, buffer.device))


def _writes(buffer: torch.Tensor) -> int:
    """torch's count of writes to a tensor; inference tensors have none."""
    return 0 if buffer.is_inference() else int(buffer._version)


def _has_bits(buffer: torch.Tensor) -> bool:
    """Whether a tensor's bits can be compared; not of sparse or quantized tensors and subclasses."""
    is_plain = type(buffer) in (torch.Tensor, torch.nn.Parameter) and buffer.layout == torch.strided
    return is_plain and not any((buffer.is_quantized, buffer.is_meta, buffer.is_conj(), buffer.is_neg()))


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return bool(torch.equal(*(each.detach().reshape(-1).contiguous().view(torch.uint8) for each in (first, second))))


def _put_back(buffer: torch.Tensor | None, copy: torch.Tensor) -> None:
    assert buffer is not None
    if _fits(copy, buffer):
        buffer.copy_(copy)
    else:  # the step gave the object another tensor's memory
        buffer.data = copy.clone()

"""Deals the samples of an epoch to the ranks: each sample once per epoch, however the world size changes.

One cursor counts the samples of the epoch that are committed. A global batch is the next `global_batch` samples of the
epoch's order; it is cut into micro-batches of one shape, which are dealt to the ranks. Order, cuts, weights and seeds
do not depend on the world, so a batch that was aborted comes again in other shares. Every rank holds the same state;
nothing is communicated. An epoch ends with the version of the order that it began with (119).
"""

from __future__ import annotations

import operator
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset

from elastic_worker.library.seeds import stable_hash
from elastic_worker.library.shuffle import KEYED, RANDPERM, EpochOrder

SAME_IN_STATE = ("length", "seed", "shuffle")
"""The keys that fix the order of an epoch: a cursor is valid in that order only."""
PRINT_SAMPLES = 64
"""Number of first samples of an order that are hashed, to check that another torch or another release of this library
shuffles in the same way.
"""


class SamplerError(ValueError):
    """An argument, a state or a share does not fit; the message says which, and what to do."""


@dataclass
class MicroBatch:
    """The samples of one forward pass, which are `part` of the global batch.

    `last` marks the rank's last one of this global batch. `data` is what a loader fetched. `is_weighed`: a script has
    read the weight: without it the loss is too large by the number of micro-batches.
    """

    indices: list[int]
    part: float
    last: bool
    seed: int
    data: Any = None
    is_weighed: bool = False

    @property
    def weight(self) -> float:
        """With a loss that is the mean over the micro-batch, the gradients of `weight * loss`, summed over all ranks,
        are those of one process.
        """
        self.is_weighed = True
        return self.part


@dataclass(frozen=True)
class RankBatch:
    """One rank's share of a global batch: `samples` samples of the epoch's order, from `first` on.

    A dummy share is the batch's first micro-batch with weight 0, for a rank that only takes part in the collectives. It
    has the usual shape, since a layer like BatchNorm refuses a single sample.
    """

    epoch: int
    first: int
    samples: int
    micro: tuple[MicroBatch, ...]
    is_dummy: bool


class Sampler:
    """Deals `length` samples per epoch in global batches of `global_batch`, the last one of an epoch being smaller.

    `micro_batch` samples go through the model at once. It has no default, as it decides how much memory a forward pass
    takes and how many ranks can take part (global_batch / micro_batch), and stays as it is when the world changes.
    `drop_last` leaves out an epoch's last batch if it is smaller.
    """

    def __init__(
        self,
        length: int,
        *,
        global_batch: int,
        micro_batch: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self.length = _length(length)
        self.global_batch = _positive("global_batch", global_batch)
        self.micro_batch = _micro_batch(micro_batch, global_batch=self.global_batch)
        self.seed = _whole("seed", seed)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        if drop_last and self.length < self.global_batch:
            raise SamplerError(
                f"drop_last=True leaves nothing of {self.length} samples with global_batch={self.global_batch}: "
                f"use a global_batch of at most {self.length}, or drop_last=False"
            )
        self.even_shares = False
        """Whether ranks with fewer micro-batches than others get further ones of weight 0, like those of a dummy share.

        FSDP2 communicates in each forward (101).
        """
        self.epoch = 0
        self.cursor = 0
        self.order_kind = self._next_order_kind = KEYED
        self._order: tuple[tuple[int, int], EpochOrder] | None = None

    def share(self, rank: int, world: int) -> RankBatch | None:
        """Share of the next global batch; None when the epoch is over."""
        return self.peek(rank, world, 0)

    def peek(self, rank: int, world: int, ahead: int) -> RankBatch | None:
        """Share of the global batch `ahead` batches after the next one; None beyond the end of this epoch."""
        return self.share_at(self.cursor + _whole("ahead", ahead, least=0) * self.global_batch, rank, world)

    def share_at(self, first: int, rank: int, world: int) -> RankBatch | None:
        """Share of the global batch that begins at position `first` of this epoch, wherever the cursor is."""
        world = _positive("world", world)
        rank = _whole("rank", rank, least=0)
        if rank >= world:
            raise SamplerError(f"rank={rank} is not in a world of {world}: ranks are 0 to {world - 1}")
        samples = self._samples_at(first)
        if samples == 0:
            return None
        count = -(-samples // self.micro_batch)
        begin, end = _dealt(count, rank, world)
        least = -(-count // world) if self.even_shares else 1
        parts = [(number * self.micro_batch, 1.0) for number in range(begin, end)]
        parts += [(0, 0.0)] * (least - len(parts))
        micro = []
        for number, (offset, counts) in enumerate(parts, 1):
            size = min(self.micro_batch, samples - offset)
            last = number == len(parts)
            micro.append(self._micro(first + offset, size, part=counts * size / samples, last=last))
        return RankBatch(self.epoch, first, samples, tuple(micro), is_dummy=begin == end)

    def batches_left(self) -> int:
        """Number of global batches of this epoch that are not committed yet."""
        left = self.length - self.cursor
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def idle_ranks(self, world: int) -> int:
        """Number of ranks of a world that get no sample of a full global batch."""
        return max(0, _positive("world", world) - self.global_batch // self.micro_batch)

    def commit(self, share: RankBatch) -> None:
        """Move the cursor past the share's global batch. Raises SamplerError if that does not begin at the cursor."""
        if not self.is_next(share):
            raise SamplerError(
                f"the share is of {share.samples} samples from {share.first} on in epoch {share.epoch}, but the next "
                f"batch is of {self._samples_at(self.cursor)} from {self.cursor} on in epoch {self.epoch}: commit each "
                "global batch once, on every rank, in the order in which they come"
            )
        self.cursor += share.samples

    def is_next(self, share: RankBatch) -> bool:
        """Whether the share's global batch begins at the cursor."""
        return (share.epoch, share.first, share.samples) == (self.epoch, self.cursor, self._samples_at(self.cursor))

    def next_epoch(self) -> None:
        """Begin the next epoch; the rest of this one is skipped."""
        self.epoch += 1
        self.cursor = 0
        self.order_kind = self._next_order_kind

    def choose_order(self, kind: int) -> None:
        """Set the order's version for later epochs, and for this one if nothing of it is committed. See shuffle.py."""
        self._next_order_kind = kind
        if self.cursor == 0:
            self.order_kind = kind

    def state_dict(self) -> dict[str, Any]:
        """State as JSON values, the same on every rank."""
        return {
            "length": self.length,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "epoch": self.epoch,
            "cursor": self.cursor,
            "global_batch": self.global_batch,
            "micro_batch": self.micro_batch,
            "order": self._order_fingerprint(self.epoch, self.order_kind),
            "order_kind": self.order_kind,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. Batch sizes may differ from those before: the cursor counts samples.

        Raises SamplerError if the state is of another order, without changing anything.
        """
        missing = [name for name in (*SAME_IN_STATE, "epoch", "cursor", "order") if name not in state]
        if missing:
            raise SamplerError(f"the state has no {', '.join(missing)}: it was not made by Sampler.state_dict()")
        for name in SAME_IN_STATE:
            if state[name] != getattr(self, name):
                raise SamplerError(
                    f"the state was saved with {name}={state[name]!r}, but this Sampler has {name}="
                    f"{getattr(self, name)!r}: its position means nothing in another order. Make the Sampler with "
                    f"{name}={state[name]!r}, or leave the sampler out of what is restored to begin with epoch 0"
                )
        epoch = _whole("epoch of the state", state["epoch"], least=0)
        cursor = _whole("cursor of the state", state["cursor"], least=0)
        if cursor > self.length:
            raise SamplerError(f"the state's cursor={cursor} is beyond its length={self.length}")
        kind = state.get("order_kind", RANDPERM)
        if kind not in (RANDPERM, KEYED):
            raise SamplerError(
                f"the state was saved with order_kind={kind!r}, by a later release of this library: use that one"
            )
        if 0 < cursor < self.length and state["order"] != self._order_fingerprint(epoch, kind):
            raise SamplerError(
                f"torch {torch.__version__} shuffles epoch {epoch} in another order than the version that the state "
                f"was saved with, at cursor={cursor}: finish the epoch with that version, or set cursor to 0 in the "
                "state to begin the epoch again"
            )
        self.epoch, self.cursor, self.order_kind = epoch, cursor, kind

    def _samples_at(self, first: int) -> int:
        samples = max(0, min(self.global_batch, self.length - first))
        return 0 if self.drop_last and samples < self.global_batch else samples

    def _micro(self, first: int, size: int, *, part: float, last: bool) -> MicroBatch:
        indices = self._order_of(self.epoch, self.order_kind).samples(first, size)
        return MicroBatch(indices, part, last, stable_hash("micro", self.seed, self.epoch, indices[0]))

    def _order_of(self, epoch: int, kind: int) -> EpochOrder:
        if self._order is None or self._order[0] != (epoch, kind):
            self._order = None
            self._order = (epoch, kind), EpochOrder(self.length, self.seed, epoch, kind=kind, shuffle=self.shuffle)
        return self._order[1]

    def _order_fingerprint(self, epoch: int, kind: int) -> int:
        return stable_hash("print", *self._order_of(epoch, kind).samples(0, PRINT_SAMPLES))


def _dealt(count: int, rank: int, world: int) -> tuple[int, int]:
    """Range [first, end) of `count` items for a rank: contiguous, larger shares first."""
    each, more = divmod(count, world)
    begin = rank * each + min(rank, more)
    return begin, begin + each + (rank < more)


def _length(value: Any) -> int:
    if isinstance(value, IterableDataset):
        raise SamplerError(
            f"length is an IterableDataset ({type(value).__name__}): its samples cannot be asked for by number, so "
            "it cannot be resumed with each sample exactly once. Use a data set with __getitem__ and __len__, and "
            "pass len(dataset)"
        )
    if isinstance(value, Sized):
        raise SamplerError(f"length is a {type(value).__name__}, not a number: pass len(dataset)")
    if not hasattr(value, "__index__"):
        raise SamplerError(
            f"length is a {type(value).__name__}, not a number: pass len(dataset). A data set without a length, or "
            "that can only be iterated over, cannot be resumed with each sample exactly once"
        )
    return _positive("length", value)


def _micro_batch(value: Any, *, global_batch: int) -> int:
    if value is None:
        raise SamplerError(
            "micro_batch is missing: the number of samples that go through the model at once. It stays when the world "
            f"changes, and at most global_batch / micro_batch ranks get work: micro_batch={global_batch} is for one "
            "rank, half of it for two"
        )
    size = _positive("micro_batch", value)
    if global_batch % size:
        below = next(size_ for size_ in range(min(size, global_batch), 0, -1) if global_batch % size_ == 0)
        raise SamplerError(
            f"global_batch={global_batch} is no multiple of micro_batch={size}: all micro-batches have one shape, so "
            f"use micro_batch={below}, or global_batch={-(-global_batch // size) * size}"
        )
    return size


def _positive(name: str, value: Any) -> int:
    return _whole(name, value, least=1)


def _whole(name: str, value: Any, *, least: int | None = None) -> int:
    """Convert to int; accepts other integer types such as NumPy's."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise SamplerError(f"{name}={value!r} is a {type(value).__name__}: it must be a whole number")
    if least is not None and number < least:
        raise SamplerError(f"{name}={number} must be {least} or more")
    return number

"""Fetches the samples of a rank's shares ahead of time, through torch's DataLoader and its worker processes.

The samples to fetch follow from the sampler's cursor, the rank and the world size, so `shares` is called again whenever
one of them changes: data that is not needed any more is dropped, and the workers continue. Random numbers drawn in a
worker depend on the micro-batch alone.

Workers are forked by default (by Python up to 3.13), also from a process with threads, as with any DataLoader: they
use only the data set. They inherit the process's connections, though, and a connection ends only when its last holder
does. So the kernel ends each worker together with the training process: otherwise the connections would stay open in
the workers, and peers would notice the death seconds later. `multiprocessing_context="forkserver"` inherits none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from signal import SIGKILL
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from elastic_worker.library.sampler import RankBatch, Sampler, SamplerError
from elastic_worker.library.seeds import kept_on_cpu, set_cpu_seeds, stable_hash
from elastic_worker.proc import die_with_parent

PASSED_ON = frozenset({"timeout", "multiprocessing_context", "pin_memory_device"})
REFUSED = {
    "batch_size": "the sampler's micro_batch says how many samples are fetched at once",
    "shuffle": "the sampler shuffles: Sampler(..., shuffle=...)",
    "drop_last": "the sampler decides on an epoch's last batch: Sampler(..., drop_last=...)",
    "batch_sampler": "the second argument is the sampler",
    "generator": "random numbers follow from the sampler's seed: Sampler(..., seed=...)",
    "persistent_workers": "its workers always stay",
    "in_order": "batches always come in the sampler's order",
}


class Loader:
    """`shares` yields what Sampler.share gives, each micro-batch with its `data`: `collate_fn` of a list of samples.

    `prefetch_factor` counts micro-batches per worker. Of DataLoader's further arguments it takes timeout,
    worker_init_fn, multiprocessing_context and pin_memory_device. A data set with `__getitems__` is asked for the whole
    micro-batch at once. Raises TypeError if the data set cannot be asked for samples by number, SamplerError if its
    length is not the sampler's.
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        *,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
        worker_init_fn: Callable[[int], None] | None = None,
        **others: Any,
    ) -> None:
        _check_dataset(dataset, sampler)
        _check_names(others)
        if num_workers == 0:
            others.pop("timeout", None)  # without workers there is nothing to wait for
        self.dataset, self.sampler = dataset, sampler
        self._current = torch.zeros(1, dtype=torch.int64)
        if num_workers > 0:
            self._current.share_memory_()
        self._ahead = _Ahead(sampler)
        self._start = _Start(worker_init_fn)
        self._loader = DataLoader(
            _Fetcher(dataset, collate_fn or default_collate, self._current),
            sampler=self._ahead,
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor if num_workers > 0 else None,
            persistent_workers=num_workers > 0,
            pin_memory=pin_memory,
            worker_init_fn=self._start,
            generator=torch.Generator().manual_seed(stable_hash("loader", sampler.seed)),
            **others,
        )

    def shares(self, rank: int, world: int) -> Iterator[RankBatch]:
        """Iterate over the shares from the sampler's cursor to the end of its epoch; fetching begins at once.

        Commit each share to the sampler before asking for the next one, which raises SamplerError otherwise. Call this
        again after a change of rank or world, or to get a share again that was not committed: an earlier iterator then
        raises RuntimeError. An error raised while a sample is fetched is raised here, as DataLoader does.
        """
        self.sampler.share(rank, world)  # a wrong rank is refused before anything is dropped
        iteration = int(self._current[0]) + 1
        self._current[0] = iteration
        self._ahead.begin(iteration, rank, world)
        self._start.from_main_thread = threading.current_thread() is threading.main_thread()
        return self._filled(iter(self._loader), iteration, rank, world)

    def _filled(self, fetched: Iterator[Any], iteration: int, rank: int, world: int) -> Iterator[RankBatch]:
        epoch, first = self._ahead.epoch, self._ahead.first
        while True:
            if iteration != int(self._current[0]):
                raise RuntimeError("shares() has been called again since: go on with what it returned then")
            if (epoch, first) != (self.sampler.epoch, self.sampler.cursor):
                raise SamplerError(
                    f"the loader is at sample {first} of epoch {epoch}, the sampler at {self.sampler.cursor} of epoch "
                    f"{self.sampler.epoch}: commit each share before the next one, or call shares() again"
                )
            share = self.sampler.share_at(first, rank, world)
            if share is None:
                return
            for micro in share.micro:
                micro.data = next(fetched)
            yield share
            first += share.samples


class _Task(NamedTuple):
    """One micro-batch for a worker to fetch."""

    iteration: int
    seed: int
    indices: list[int]


class _Ahead:
    """DataLoader's sampler: the tasks of an iteration in order. DataLoader decides how many it takes in advance."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def begin(self, iteration: int, rank: int, world: int) -> None:
        self.epoch, self.first = self.sampler.epoch, self.sampler.cursor
        self.iteration, self.rank, self.world = iteration, rank, world

    def __iter__(self) -> Iterator[_Task]:
        first = self.first
        while True:
            share = self.sampler.share_at(first, self.rank, self.world)
            if share is None:
                return
            for micro in share.micro:
                # The model's dropout draws from the micro-batch's seed, so the workers use another one.
                yield _Task(self.iteration, stable_hash("data", micro.seed), micro.indices)
            first += share.samples


class _Fetcher:
    """DataLoader's data set, of which a task is the number of a sample. Copies of it live in the workers."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any], current: torch.Tensor) -> None:
        self.dataset, self.collate, self.current = dataset, collate, current

    def __getitem__(self, task: _Task) -> Any:
        if task.iteration != int(self.current[0]):
            return None  # dropped already: return at once, so that the new iteration begins sooner
        in_worker = get_worker_info() is not None
        with nullcontext() if in_worker else kept_on_cpu():
            set_cpu_seeds(task.seed)
            return self.collate(self._samples(task.indices))

    def _samples(self, indices: list[int]) -> list[Any]:
        at_once = getattr(self.dataset, "__getitems__", None)
        if at_once:
            return at_once(indices)  # type: ignore[no-any-return]
        return [self.dataset[index] for index in indices]


class _Start:
    """Runs at each worker's start: lets it end with its parent, where that is safe, and calls the user's function."""

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self.worker_init_fn = worker_init_fn
        self.from_main_thread = False

    def __call__(self, worker: int) -> None:
        # The kernel takes the thread that forked for the parent: a thread other than the main one may end at any time.
        if self.from_main_thread:
            with suppress(OSError):
                die_with_parent(SIGKILL)
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker)


def _as_it_is(data: Any) -> Any:
    return data


def _check_dataset(dataset: Any, sampler: Sampler) -> None:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"{type(dataset).__name__} cannot be asked for samples by number, so it cannot be resumed with each "
            "sample exactly once: use a data set with __getitem__ and __len__"
        )
    if hasattr(dataset, "__len__") and len(dataset) != sampler.length:
        raise SamplerError(
            f"the data set has {len(dataset)} samples, the sampler has length={sampler.length}: make it with "
            f"Sampler({len(dataset)}, ...)"
        )


def _check_names(others: dict[str, Any]) -> None:
    for name in others:
        if name in REFUSED:
            raise TypeError(f"Loader takes no {name}: {REFUSED[name]}")
        if name not in PASSED_ON:
            raise TypeError(f"Loader has no argument {name}; of DataLoader's it takes {', '.join(sorted(PASSED_ON))}")

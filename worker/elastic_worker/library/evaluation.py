"""Evaluations: spread over all ranks, summed at the end, and repeated if the group changes in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class EvalBatch:
    """`indices` of samples for this rank; empty if there are more ranks than samples left."""

    indices: list[int]


class EvaluationJob(Protocol):
    """The part of a job that its evaluations use."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def draw_alike(self, where: str, *numbers: int) -> None:
        """Let all ranks draw the same random numbers after this call (102)."""

    def pass_boundary(self) -> bool:
        """Whether the group has changed."""

    def free_boundary(self) -> None:
        """Do not count the next boundary, where the other ranks wait already."""

    def share_buffers(self) -> bool:
        """Give all ranks the running statistics of rank 0; False if the group was lost."""

    def add_up(self, sums: dict[str, float]) -> dict[str, float] | None:
        """Sum over all ranks; None if the group was lost meanwhile."""


class Evaluation:
    """Made by `job.eval_batches(...)`: iterate, `add` sums for each batch, read `result` afterwards.

    Sums that the script keeps itself would count twice after a change of the group; those given to `add` do not.
    """

    def __init__(
        self, job: EvaluationJob, length: int, batch_size: int, earlier_result: Callable[[], dict[str, float] | None]
    ) -> None:
        self._job, self._length, self._size = job, length, batch_size
        self._earlier_result, self._result, self._sums = earlier_result, earlier_result(), dict[str, float]()
        self._in_new_group = False

    def __iter__(self) -> Iterator[EvalBatch]:
        yield from self._until_known()
        # Ranks have evaluated different samples, and some none.
        self._job.draw_alike("evaluated", self._length)

    def _until_known(self) -> Iterator[EvalBatch]:
        while self._result is None:
            self._sums.clear()
            if not self._in_new_group:
                self._in_new_group = self._job.pass_boundary()
            if self._in_new_group and self._is_known():
                return
            self._in_new_group = False
            if not self._job.share_buffers():
                continue
            yield from self._batches()
            if not self._in_new_group:
                self._result = self._job.add_up(self._sums)

    def _is_known(self) -> bool:
        """Whether a faster rank has the result already. Then this rank goes to the boundary where the faster one
        waits.
        """
        self._result = self._earlier_result()
        if self._result is not None:
            self._job.free_boundary()
        return self._result is not None

    def _batches(self) -> Iterator[EvalBatch]:
        """Yield this rank's batches, to the end or until the group changes."""
        first = 0
        while first < self._length:
            self._in_new_group = self._job.pass_boundary()
            if self._in_new_group:
                return
            rank, world = self._job.rank, self._job.world_size
            begin = first + rank * self._size
            yield EvalBatch(list(range(begin, min(begin + self._size, self._length))))
            first += world * self._size

    def add(self, **sums: Any) -> None:
        """Add to the sums of these names: numbers, or tensors of one element."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)

    @property
    def result(self) -> dict[str, float]:
        """The sums over all ranks. Raises RuntimeError before the end of the loop."""
        if self._result is None:
            raise RuntimeError("the evaluation is not over: read .result after the loop")
        return dict(self._result)


def length_of(data: Any) -> int:
    """The length of a data set, or the number itself. Raises TypeError for an iterable data set."""
    if isinstance(data, int):
        return data
    if isinstance(data, torch.utils.data.IterableDataset) or not hasattr(data, "__len__"):
        raise TypeError(f"{type(data).__name__} has no length: job.eval_batches needs a data set with indices")
    return len(data)

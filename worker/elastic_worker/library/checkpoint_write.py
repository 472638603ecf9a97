"""Writes a checkpoint: by this process alone, or by all ranks of a group, each of which writes its shards.

In a group every rank enters every collective even after an error, so that no rank waits for a missing one; then all
raise the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from elastic_worker.library import checkpoint_dcp
from elastic_worker.library.checkpoint_save import SaveAttempt
from elastic_worker.library.checkpoint_state import CheckpointStateError, Tensors, take_apart
from elastic_worker.library.manifest import Digest, digests


class ElsewhereError(Exception):
    """The save failed on another rank; the message says why."""


def write_alone(attempt: SaveAttempt, tensors: Tensors, structure: bytes) -> bool:
    """Write a save; False if the step was saved before. After an error removes the files and raises it."""
    try:
        if not attempt.begin(structure):
            return False
        checkpoint_dcp.write_alone(tensors, attempt.folder)
        attempt.complete(digests(attempt.folder.iterdir()))
    except BaseException:
        attempt.abandon()
        raise
    return True


def write_together(attempt: SaveAttempt, state: Any, group: Any) -> bool:
    """Write a save; every rank of the group calls this with its shards. Plain values are the first rank's.

    False if the step was saved before.
    Raises FailedOnRanks or ElsewhereError on all ranks, or what torch raises when a peer is lost.
    """
    is_first = dist.get_rank(group) == 0
    try:
        return _write_together(attempt, state, group, is_first)
    except BaseException:
        if is_first:
            attempt.abandon()
        raise


def _write_together(attempt: SaveAttempt, state: Any, group: Any, is_first: bool) -> bool:
    tensors: Tensors = {}

    def begin() -> bool | None:
        _refuse_unfit(group)
        tensors_here, structure = take_apart(state)
        tensors.update(tensors_here)
        return attempt.begin(structure) if is_first else None

    def digest() -> dict[str, Digest]:
        mine = checkpoint_dcp.files_of_rank(attempt.folder, dist.get_rank(group))
        if is_first:
            mine += [path for path in attempt.folder.iterdir() if not path.name.startswith("__")]
        return digests(mine)

    if not _on_all(attempt, group, begin)[0]:
        return False
    checkpoint_dcp.write_together(tensors, attempt.folder, group)
    files = {name: value for part in _on_all(attempt, group, digest) for name, value in part.items()}
    _on_all(attempt, group, lambda: attempt.complete(files) if is_first else None)
    return True


def _on_all(attempt: SaveAttempt, group: Any, act: Callable[[], Any]) -> list[Any]:
    """Run `act` on each rank; results by rank. Raises ElsewhereError on all ranks if it failed on one."""
    outcome: tuple[Any, str]
    try:
        outcome = act(), ""
    except Exception as error:  # noqa: BLE001  # the others wait for an answer, also for an error
        outcome = None, attempt.reason(error) or repr(error)
    outcomes: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(outcomes, outcome, group=group)
    for rank, (_, reason) in enumerate(outcomes):
        if reason:
            raise ElsewhereError(reason if rank == 0 else f"on rank {rank}: {reason}")
    return [value for value, _ in outcomes]


def _refuse_unfit(group: Any) -> None:
    if dist.get_global_rank(group, 0) != 0:
        raise CheckpointStateError("the group that saves must begin with rank 0: DCP of older torch gathers there")

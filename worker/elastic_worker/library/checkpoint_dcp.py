"""Writes named tensors with torch.distributed.checkpoint (DCP) and reads them, alone or together with other ranks.

Alone: DCP's own `save` and `load` talk to the other ranks whenever torch.distributed is initialized (a way to switch
it off came after 2.4), so its planner and its storage are called here in the order their documentation gives.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException as FailedOnRanks
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from elastic_worker.library.checkpoint_state import Tensors

__all__ = ["FailedOnRanks", "empty", "files_of_rank", "read_into", "saved_tensors", "write_alone", "write_together"]


def write_alone(tensors: Tensors, folder: Path) -> None:
    """Write all tensors from this process alone, durably. The tensors must be on the CPU and contiguous.

    Raises OSError, or what torch finds wrong with the tensors.
    """
    # Copies in advance would use a stream of CUDA device 0 in every process.
    writer = _Writer(folder, per_thread_copy_ahead=0)
    planner = dcp.DefaultSavePlanner()
    _ignore_storage_warning()
    planner.set_up_planner(tensors, storage_meta=writer.storage_meta(), is_coordinator=True)
    writer.set_up_storage_writer(True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([plan])
    plan = planner.finish_plan(writer.prepare_global_plan(plans)[0])
    writer.finish(metadata, [writer.write_data(plan, planner).wait()])


def write_together(tensors: Tensors, folder: Path, group: Any) -> None:
    """Write the shards of each rank; all ranks of the group call this. Raises FailedOnRanks on all of them."""
    _ignore_storage_warning()
    dcp.save(tensors, storage_writer=_Writer(folder), process_group=group)


def files_of_rank(folder: Path, rank: int) -> list[Path]:
    """Files that DCP wrote for this rank of the group."""
    return list(folder.glob(f"__{rank}_*"))


def saved_tensors(folder: Path) -> dict[str, TensorStorageMetadata]:
    """Sizes and types of the saved tensors by name."""
    entries: Mapping[str, Any] = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    return {name: entry for name, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}


def empty(entry: TensorStorageMetadata) -> Any:
    """Uninitialized host memory for a tensor."""
    return torch.empty(entry.size, dtype=entry.properties.dtype)


def read_into(tensors: Tensors, folder: Path) -> None:
    """Fill the tensors, also sharded ones: each rank reads what it needs, without communication."""
    reader = dcp.FileSystemReader(folder)
    planner = dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    metadata = reader.read_metadata()
    planner.set_up_planner(tensors, metadata, True)
    reader.set_up_storage_reader(metadata, True)
    plan = reader.prepare_local_plan(planner.create_local_plan())
    plan = planner.finish_plan(reader.prepare_global_plan(planner.create_global_plan([plan]))[0])
    with torch.no_grad():
        reader.read_data(plan, planner).wait()


class _Writer(dcp.FileSystemWriter):  # type: ignore[misc]
    """Raises the disk's error itself. torch raises another error with it as context, which is lost between ranks."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            from_disk = _from_disk(error)
            if from_disk is None or from_disk is error:
                raise
            raise from_disk from None


def _from_disk(error: BaseException | None) -> OSError | None:
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _ignore_storage_warning() -> None:
    """Ignore the warning of torch 2.4 about a class that its DCP uses. Adding the filter again changes nothing."""
    warnings.filterwarnings("ignore", "TypedStorage is deprecated", UserWarning, r"torch\.distributed\.checkpoint")

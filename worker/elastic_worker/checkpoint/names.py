"""What the names of files say: a temporary one, a log, a part of a checkpoint, a description."""

from __future__ import annotations

from pathlib import PurePath

DCP_METADATA = ".metadata"
"""torch.distributed.checkpoint writes it last, after all ranks have written their parts."""
DCP_PART = ".distcp"

_TEMPORARY_ENDS = (".tmp", ".temp", ".part", ".partial", ".incomplete", "~")
_TEMPORARY_STARTS = ("tmp", ".tmp")
_LOG_ENDS = (".log", ".out", ".err", ".jsonl", ".csv", ".lock", ".pid")
_DESCRIPTION_ENDS = (".yaml", ".yml", ".toml", ".ini", ".md", ".txt", ".py")


def is_temporary(below: PurePath) -> bool:
    """Whether the file, or a folder it lies in, has a name that is given until it is complete."""
    return any(part.endswith(_TEMPORARY_ENDS) or part.startswith(_TEMPORARY_STARTS) for part in below.parts)


def is_log(below: PurePath) -> bool:
    """Whether it is written all the time: its being open or changed says nothing of checkpoints."""
    return below.name.endswith(_LOG_ENDS) or "tfevents" in below.name


def is_description(below: PurePath) -> bool:
    """Whether it tells of the run or the model; alone it is no checkpoint."""
    name = below.name
    return name.endswith(_DESCRIPTION_ENDS) or (name.endswith(".json") and "config" in name)


def ends_a_checkpoint(below: PurePath) -> bool:
    """Whether nothing follows it: the metadata of the checkpoint at the path itself or in a folder right below.

    Deeper ones are parts of a larger checkpoint, which has one for the model and one for the optimizer.
    """
    return below.name == DCP_METADATA and len(below.parts) <= 2


def is_part(below: PurePath) -> bool:
    """Whether it counts only together with the metadata that follows."""
    return below.name.endswith(DCP_PART)

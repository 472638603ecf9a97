"""Classifies files by name: temporary, log, description, part of a checkpoint, or its marker.

A marker is the file that a format writes last. Formats contain each other: a checkpoint of Hugging Face's trainer
contains one of DeepSpeed, or two of torch. The marker of the outer one counts.
"""

from __future__ import annotations

import re
from pathlib import PurePath

DCP_METADATA = ".metadata"
"""torch.distributed.checkpoint writes it last, after all ranks have written their parts."""
DCP_PART = ".distcp"

MARKERS = ("trainer_state.json", "latest_checkpointed_iteration.txt", "latest", DCP_METADATA)
"""Markers of Hugging Face's trainer, Megatron, DeepSpeed and torch. A format may contain those that follow it here."""
_HUGGING_FACE = re.compile(r"(?:^|/)checkpoint-\d+/(?:training_args\.bin$|pytorch_model_fsdp|global_step\d+/)")
_MEGATRON = re.compile(r"(?:^|/)iter_\d{7}/")
_DEEPSPEED = re.compile(r"_(?:model|optim)_states\.pt$")

_TEMPORARY_ENDS = (".tmp", ".temp", ".part", ".partial", ".incomplete", "~")
_TEMPORARY_STARTS = ("tmp", ".tmp")
_LOG_ENDS = (".log", ".out", ".err", ".jsonl", ".csv", ".lock", ".pid", ".wandb")
_DESCRIPTION_ENDS = (".yaml", ".yml", ".toml", ".ini", ".md", ".txt", ".py")


def is_temporary(below: PurePath) -> bool:
    """Whether the file, or a folder around it, has a name that is used until it is complete."""
    return any(part.endswith(_TEMPORARY_ENDS) or part.startswith(_TEMPORARY_STARTS) for part in below.parts)


def is_log(below: PurePath) -> bool:
    """Whether the file is a log, which is written all the time and so shows nothing about checkpoints."""
    return below.name.endswith(_LOG_ENDS) or "tfevents" in below.name


def is_description(below: PurePath) -> bool:
    """Whether the file describes the run or the model. Such a file alone is no checkpoint."""
    name = below.name
    return name.endswith(_DESCRIPTION_ENDS) or (name.endswith(".json") and "config" in name)


def marker(below: PurePath) -> str:
    """Which of MARKERS the file is; "" if none.

    torch's counts only at the path itself, or in a folder right below it. A deeper one may be part of a larger
    checkpoint, which has one for the model and one for the optimizer.
    """
    if below.name == DCP_METADATA and len(below.parts) > 2:
        return ""
    return below.name if below.name in MARKERS else ""


def announced(below: PurePath) -> str:
    """Which of MARKERS is expected after this file, as the file's name shows its format; "" if none is known."""
    path = below.as_posix()
    if _HUGGING_FACE.search(path):
        return "trainer_state.json"
    if _MEGATRON.search(path):
        return "latest_checkpointed_iteration.txt"
    if _DEEPSPEED.search(path):
        return "latest"
    return DCP_METADATA if is_part(below) else ""


def is_part(below: PurePath) -> bool:
    """Whether the file counts only together with torch's metadata, which follows in the same folder."""
    return below.name.endswith(DCP_PART)

"""The cost of a change of size, and the speed-up by more GPUs. Constants, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import log2

START_SECONDS = 20.0
"""From a pod on a node to processes that train: 5 s import torch, 5 s make the first optimizer, the rest is rendezvous
and the checkpoint (`make demo`: 16 to 19 s; docs/elastic.md: 17.7 s). Pulls of images and large checkpoints take
longer, so this favours policies that stop jobs often.
"""
LEAVE_SECONDS = 2.0
"""From the deletion of a pod to its end: the end of a process with torch takes 1 to 2 s (decision 56)."""
ALIGN_SECONDS = 60.0
"""The longest wait of a leaving pod of Elastic mode for a checkpoint (`alignTimeoutSeconds`)."""
DELAY_SECONDS = 30
"""The time after a change of size in which a job does not grow (the default of `scaleUpDelaySeconds`)."""
SAVE_SECONDS = 5.0
"""The time from the request for a checkpoint before a planned change (decision 132) to its end. Training continues
meanwhile.
"""
NODE_LOSS_SECONDS = 40.0
"""The time after which a lost node is given up (decision 86). Kubernetes alone waits 300 s, so this favours the other
policies.
"""

MISSED_SECONDS = 5.0
"""The time after which the others continue in Elastic mode when a pod is silent (decisions 55 and 126)."""


class Mode(StrEnum):
    """How a job's processes are run; `FIXED` is a plain script for one size."""

    LIBRARY = "library"
    ELASTIC = "elastic"
    TORCHRUN = "torchrun"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds in which a group takes no step because its size changes."""

    join: float
    leave: float
    loss: float


PAUSES = {
    Mode.LIBRARY: Pauses(join=0.555, leave=0.136, loss=0.274),
    Mode.ELASTIC: Pauses(join=0.33, leave=0.36, loss=0.32),
    Mode.TORCHRUN: Pauses(join=6.9, leave=10.9, loss=18.1),
    Mode.FIXED: Pauses(join=0.0, leave=0.0, loss=0.0),
}
"""docs/library.md (a state of 1 GB, and the loss of a master), docs/elastic.md (Elastic; torchrun with our
environment). A fixed job is restarted, which costs START_SECONDS."""


def pace(gpus: int, slope: float) -> float:
    """The speed-up of this many GPUs over one: each doubling adds `slope` to the share of communication."""
    return gpus / (1.0 + slope * log2(gpus)) if gpus else 0.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions that are not measured here; `variants.py` tries other values.

    `elastic` is the share of jobs that can change their size, `modes` are the modes of these, in equal parts. Every job
    writes a checkpoint each `checkpoint_seconds`; in Elastic mode the script also `listens` to requests. Jobs in
    Torchrun mode set `torchrun_delay` as their `scaleUpDelaySeconds`. An elastic job requests `least` to `most` times
    the size that it would have if it could not change.
    """

    elastic: float = 0.7
    modes: tuple[Mode, ...] = (Mode.LIBRARY, Mode.ELASTIC, Mode.TORCHRUN)
    least: float = 0.25
    most: float = 2.0
    checkpoint_seconds: float = 1200.0
    listens: bool = True
    start_seconds: float = START_SECONDS
    torchrun_delay: int = DELAY_SECONDS
    load: tuple[float, float] = (0.7, 1.2)

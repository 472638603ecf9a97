"""What a change of size costs a training, and how much more so many GPUs do. Constants, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import log2

START_SECONDS = 20.0
"""From a pod on a node to processes that train: 5 s import torch, 5 s make the first optimizer, the rest is rendezvous
and the checkpoint (`make demo`: 16 to 19 s; docs/elastic.md: 17.7 s). Pulls of images and large checkpoints take
longer, so this is kind to whoever stops jobs often."""
LEAVE_SECONDS = 2.0
"""From the deletion of a pod to its end: the end of a process with torch takes 1 to 2 s (decision 56)."""
ALIGN_SECONDS = 60.0
"""A leaving pod of Elastic mode waits no longer for a checkpoint (`alignTimeoutSeconds`)."""
DELAY_SECONDS = 30
"""After a change of size a job does not grow for so long (`scaleUpDelaySeconds`, where nobody sets it)."""
SAVE_SECONDS = 5.0
"""From the request for a checkpoint before a planned change (decision 132) to its end, in which training goes on."""
NODE_LOSS_SECONDS = 40.0
"""A node is given up so long after it went (decision 86). Kubernetes alone waits 300 s: this is kind to the others."""

MISSED_SECONDS = 5.0
"""In Elastic mode the others go on so long after a pod went silent (decisions 55 and 126)."""


class Mode(StrEnum):
    """How a job's processes are run; `FIXED` is a plain script that knows nothing of other sizes."""

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
environment). A fixed job starts again: that costs START_SECONDS."""


def pace(gpus: int, slope: float) -> float:
    """How many times as fast as one GPU so many are: each doubling adds `slope` to what communication takes."""
    return gpus / (1.0 + slope * log2(gpus)) if gpus else 0.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is not measured here, and what other answers are tried for.

    `elastic` is the share of jobs that can change their size, `modes` are how these are run, in equal parts.
    Every job writes a checkpoint each `checkpoint_seconds`; of those in Elastic mode the script `listens` to requests.
    Jobs in Torchrun mode set `torchrun_delay` as their `scaleUpDelaySeconds`.
    An elastic job asks for `least` to `most` times the size that it would have if it could not change.
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

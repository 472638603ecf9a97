"""Reads how busy each GPU is from nvidia-smi, twice a second while a training runs."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import mean

WATCH = (
    "nvidia-smi",
    "--query-gpu=timestamp,uuid,utilization.gpu",
    "--format=csv,noheader,nounits",
    "--loop-ms=500",
)
TIME = "%Y/%m/%d %H:%M:%S.%f"


@contextmanager
def watched(file: Path) -> Iterator[None]:
    """Within this context, lines are written to `file`."""
    with file.open("w") as output, subprocess.Popen(WATCH, stdout=output, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def busy(told: str, *, began: float, ended: float) -> dict[str, float]:
    """By GPU, the mean share (0 to 1) of the time between two moments (seconds since 1970) in which it computed."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for line in told.splitlines():
        parts = [part.strip() for part in line.split(",")]
        # The last line may be cut, and some cards report no utilisation.
        if len(parts) == 3 and parts[2].isdigit() and began <= datetime.strptime(parts[0], TIME).timestamp() <= ended:
            seen[parts[1]].append(int(parts[2]) / 100)
    return {uuid: mean(shares) for uuid, shares in seen.items()}

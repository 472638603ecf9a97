# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The measurements of a process, in FOLDER/journal-RANK.json.

epochs: for each of them when it began and ended (seconds since 1970), its images (of all processes), and the CPU time
of this process. counts: by each way to evaluate, the sums of the last epoch (right answers, images, loss).
peak_bytes: for each device that this process used; on a CPU the process's resident memory. parameters: of the model.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn


class Journal:
    """The journal of one process."""

    def __init__(self, folder: Path, *, rank: int, world_size: int, model: nn.Module) -> None:
        self._file = folder / f"journal-{rank}.json"
        self._told = {"rank": rank, "world_size": world_size, "parameters": sum(p.numel() for p in model.parameters())}
        self._epochs: list[dict[str, Any]] = []
        self.counts: dict[str, list[float] | None] = {}

    @contextmanager
    def epoch(self, *, images: int) -> Iterator[None]:
        """Record an epoch, whose training lasts until the device has done all of it."""
        began, cpu = time.time(), time.process_time()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent = time.process_time() - cpu
        self._epochs.append({"began": began, "ended": time.time(), "images": images, "cpu_seconds": spent})

    def write(self) -> None:
        """Write the file, after the last epoch."""
        told = {**self._told, "epochs": self._epochs, "counts": self.counts, "peak_bytes": peak_bytes()}
        self._file.write_text(json.dumps(told))


def peak_bytes() -> list[int]:
    """The peak memory. That of getrusage would include the parent's before the fork."""
    if torch.cuda.is_available():
        used = [torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count())]
        return [peak for peak in used if peak]
    status = Path("/proc/self/status").read_text()
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]
    return [int(kilobytes) * 1024]

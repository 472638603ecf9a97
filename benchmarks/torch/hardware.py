"""Finds the devices of this machine to train on: GPUs, else cores."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local import cards

ASK = ("nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader")
BF16 = {"avx512_bf16", "amx_bf16"}
"""The CPU instructions for mixed precision."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """`uuid` begins with GPU-."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """`load` is the other load of the cores, averaged over a minute."""

    cpu: str
    cores: int
    has_bf16: bool = True
    gpus: tuple[Gpu, ...] = ()
    load: float = 0.0

    @property
    def devices(self) -> int:
        """How many processes can compute at once."""
        return len(self.gpus) or self.cores

    def __str__(self) -> str:
        cpu = f"{self.cores} cores ({self.cpu})"
        return f"{len(self.gpus)} x {self.gpus[0].name}, {cpu}" if self.gpus else f"no GPU, {cpu}"


def look() -> Hardware:
    """The present hardware."""
    told = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", told, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", told, re.MULTILINE)
    return Hardware(
        cpu=name[1] if name else os.uname().machine,
        cores=len(os.sched_getaffinity(0)),
        has_bf16=bool(flags and BF16 & set(flags[1].split())),
        gpus=_gpus(),
        load=os.getloadavg()[0],
    )


def _gpus() -> tuple[Gpu, ...]:
    """The GPUs of the user's choice; all if there is no choice."""
    if not shutil.which(ASK[0]):
        return ()
    done = subprocess.run(ASK, capture_output=True, text=True, check=False)
    found = [Gpu(*line.split(", ", 1)) for line in done.stdout.splitlines()] if done.returncode == 0 else []
    chosen = cards.chosen()
    if chosen is None:
        return tuple(found)
    return tuple(gpu for index, gpu in enumerate(found) if _is_named(gpu, index, chosen))


def _is_named(gpu: Gpu, index: int, chosen: list[str]) -> bool:
    """Whether the GPU is named: CUDA accepts the beginning of a UUID, too."""
    return any(card == str(index) or (card.startswith("GPU-") and gpu.uuid.startswith(card)) for card in chosen)

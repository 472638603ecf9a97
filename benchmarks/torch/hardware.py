"""What this machine has to train on: GPUs, else cores, each of which counts as a device."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASK = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
BF16 = {"avx512_bf16", "amx_bf16"}
"""Instructions of CPUs for what mixed precision computes with there."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """`gpus` are names, one for each; `load` is what else ran on the cores, averaged over a minute."""

    cpu: str
    cores: int
    has_bf16: bool = True
    gpus: tuple[str, ...] = ()
    load: float = 0.0

    @property
    def devices(self) -> int:
        """How many processes can compute at once."""
        return len(self.gpus) or self.cores

    def __str__(self) -> str:
        cpu = f"{self.cores} cores ({self.cpu})"
        return f"{len(self.gpus)} x {self.gpus[0]}, {cpu}" if self.gpus else f"no GPU, {cpu}"


def look() -> Hardware:
    """As it is now."""
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


def _gpus() -> tuple[str, ...]:
    if not shutil.which(ASK[0]):
        return ()
    done = subprocess.run(ASK, capture_output=True, text=True, check=False)
    return tuple(done.stdout.splitlines()) if done.returncode == 0 else ()

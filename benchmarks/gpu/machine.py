"""Finds the devices to measure on: a python with torch, and the GPUs that it sees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live.errors import BenchError

ASK = """
import json, platform, torch
from torch import distributed
seen = torch.cuda.is_available()
cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count() if seen else 0)]
nccl = ".".join(map(str, torch.cuda.nccl.version())) if seen and distributed.is_nccl_available() else ""
gpus = [{"name": card.name, "gib": round(card.total_memory / (1 << 30), 1)} for card in cards]
about = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda or ""}
print(json.dumps({**about, "nccl": nccl, "gpus": gpus}))
"""
LAST_LINE = -1


@dataclass(frozen=True)
class Machine:
    """`gpus` are names and GiB, none on a machine that is measured by its CPU."""

    program: str
    python: str
    torch: str
    cuda: str
    nccl: str
    gpus: tuple[dict[str, object], ...]

    @property
    def device(self) -> str:
        """The device that computes."""
        return "cuda" if self.gpus else "cpu"

    @property
    def shares_a_card(self) -> bool:
        """Whether all ranks compute on one card."""
        return len(self.gpus) == 1

    @property
    def most(self) -> int:
        """The most pods, each with one rank."""
        return min(len(self.gpus), 8) if len(self.gpus) > 1 else 3


def look(python: str, device: str) -> Machine:
    """The machine; `device` is auto, cuda or cpu. Raises BenchError, with one line that says what to do."""
    program = shutil.which(python)
    if program is None:
        raise BenchError(f"there is no program {python!r}: name a python that has torch (PYTHON=...)")
    asked = subprocess.run([program, "-c", ASK], capture_output=True, text=True, check=False, env=dict(os.environ))
    if asked.returncode:
        why = (asked.stderr.strip().splitlines() or [f"code {asked.returncode}"])[LAST_LINE]
        raise BenchError(f"{program} has no torch that works ({why}): name a python that has (PYTHON=...)")
    told = json.loads(asked.stdout.splitlines()[LAST_LINE])
    gpus = () if device == "cpu" else tuple(told.pop("gpus"))
    told.pop("gpus", None)
    if device != "cpu" and not gpus:
        raise BenchError(
            f"no GPU: torch {told['torch']} of {program} sees none (--device cpu tells the stories on gloo)"
        )
    return Machine(program=str(Path(program)), gpus=gpus, **told)

"""Starts the trainings: two processes on this machine, under torchrun alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.live.errors import BenchError
from benchmarks.local.python import PYTHON, torch_environ
from benchmarks.overhead.figures import Pair, Run
from elastic_worker import contract

PROCESSES = 2
HERE = Path(__file__).parent
WORKER = Path(contract.__file__).parents[1]
LIMIT_SECONDS = 300.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES))


@dataclass(frozen=True, slots=True)
class Runner:
    """`steps` are measured after `warm_up` others; results pass through `folder`."""

    folder: Path
    steps: int
    warm_up: int

    def pair(self, number: int) -> Pair:
        """Run both trainings, in alternating order. Raises BenchError."""
        names = ["plain", "library"] if number % 2 else ["library", "plain"]
        made = {name: self._train(name) for name in names}
        return Pair(made["plain"], made["library"])

    def commit_us(self, rounds: int) -> float:
        """CPU time of the library itself per step. Raises BenchError."""
        told = self._run([str(HERE / "commit.py")], str(rounds))
        return float(told["library_us"]) - float(told["bare_us"])

    def _train(self, name: str) -> Run:
        told = self._run([*TORCHRUN, str(HERE / f"{name}.py")], str(self.steps), str(self.warm_up))
        return Run(step=told["step_s"], fast=told["fast_s"], cpu=told["cpu_s"])

    def _run(self, program: Sequence[str], *arguments: str) -> dict[str, Any]:
        """The content that the program wrote to the file in its first argument."""
        file = self.folder / "told.json"
        file.unlink(missing_ok=True)
        command = [PYTHON, *program, str(file), *arguments]
        try:
            done = subprocess.run(
                command, env=_environ(), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{program[-1]} did not end within {LIMIT_SECONDS:.0f} s") from error
        if done.returncode or not file.exists():
            raise BenchError(f"{program[-1]} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
        told = json.loads(file.read_text())
        assert isinstance(told, dict)
        return told


def _environ() -> dict[str, str]:
    told = torch_environ()
    return told | {"PYTHONPATH": f"{told['PYTHONPATH']}:{WORKER}"}

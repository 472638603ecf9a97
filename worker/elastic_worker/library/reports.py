"""Reports progress, goodput and the length of changes to the launcher."""

from __future__ import annotations

import time
from typing import Any

from elastic_worker.library.checkpoints import Checkpoints
from elastic_worker.library.goodput import Goodput
from elastic_worker.library.launcher_line import LauncherLine
from elastic_worker.library.remaining import Remaining
from elastic_worker.library.state import State
from elastic_worker.protocol.process_reports import Progress, Stepped
from elastic_worker.protocol.reports import CheckpointError, LastCheckpointStep

REPORT_SECONDS = 0.5


class Reports:
    """The reports of one process; dropped without a launcher. `epochs` is how many there are, None if not known."""

    def __init__(self, line: LauncherLine | None, goodput: Goodput) -> None:
        self._line, self._goodput = line, goodput
        self._last_commit = self._reported_at = 0.0
        self._entered: tuple[int, float] | None = None
        self._remaining = Remaining()
        self.epochs: int | None = None
        self._checkpoint: tuple[int | None, str] = (None, "")

    def entered(self, generation: int) -> None:
        """Note a new group: its first step is reported at once, with the pause since the last step."""
        self._entered = generation, self._last_commit
        self._remaining.entered()

    def committed(self, state: State, loss: Any, checkpoints: Checkpoints | None) -> None:
        """Report a committed step."""
        now = time.monotonic()
        if self._line is not None:
            if self._entered is not None:
                generation, last_step_at = self._entered
                self._line.send(Stepped(round(now - last_step_at, 4) if last_step_at else 0.0, generation))
                self._entered = None
                self._reported_at = 0.0
            if now >= self._reported_at + REPORT_SECONDS:
                self._reported_at = now
                self._report(self._line, state, loss, checkpoints)
        self._last_commit = now

    def _report(self, line: LauncherLine, state: State, loss: Any, checkpoints: Checkpoints | None) -> None:
        line.median_step = self._goodput.median_step() if self._goodput.is_steady else None
        samples = state.data.epoch * state.data.length + state.data.cursor
        total = None if self.epochs is None else self.epochs * state.data.length
        percentage, remaining = self._remaining.look(samples, total, time.monotonic())
        progress = Progress(
            step=state.step,
            epoch=state.data.epoch,
            samples=samples,
            boundary=line.boundaries_passed,
            median=round(self._goodput.median_step(), 4),
            goodput=self._goodput.to_status(),
            loss=None if loss is None else float(loss),
            percentage=percentage,
            remaining=remaining,
        )
        line.send(progress)
        if checkpoints is None:
            return
        outcome = checkpoints.last_step, checkpoints.problem
        if outcome != self._checkpoint:
            step, problem = self._checkpoint
            self._checkpoint = outcome
            if outcome[0] is not None and outcome[0] != step:
                line.send(LastCheckpointStep(outcome[0]))
            if outcome[1] != problem:
                line.send(CheckpointError(outcome[1]))

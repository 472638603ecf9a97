"""The report of the quota demo, for readers and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.journal import Epoch
from demo.reclaims import TakenBack
from demo.stage import Done


@dataclass(frozen=True, slots=True)
class Report:
    """The GPUs that a team got back, the events (`told`), the training, and the expectations that came true."""

    taken_back: TakenBack
    told: Sequence[str]
    epochs: Sequence[Epoch]
    done: Sequence[Done]

    @property
    def world_sizes(self) -> list[int]:
        """The numbers of processes on which the job trained, in order."""
        return [size for size, _ in groupby(epoch.world_size for epoch in self.epochs)]

    def as_json(self) -> dict[str, Any]:
        """The whole report; times are in seconds."""
        return {
            "steps": [{"expected": done.expected, "seconds": round(done.seconds, 3)} for done in self.done],
            "worldSizes": self.world_sizes,
            "reclaims": [reclaim.as_json() for reclaim in self.taken_back.reclaims],
            "evictedPerRequestedGPU": self.taken_back.ratio,
            "pendingToRunningP50Seconds": round(self.taken_back.running_after(0.5), 3),
            "pendingToRunningP95Seconds": round(self.taken_back.running_after(0.95), 3),
            "events": list(self.told),
        }

    def show(self, console: Console) -> None:
        """As tables."""
        for note in self.told:
            console.print(f"  event: {note}", style="cyan")
        console.print(self._reclaims())

    def _reclaims(self) -> Table:
        table = Table(title="GPUs that went back to their owner (seconds since the pod was created)", expand=False)
        for column in ("pending pod", "node", "victims"):
            table.add_column(column)
        for column in ("evicted after", "freed after", "bound after", "running after", "evicted/requested GPUs"):
            table.add_column(column, justify="right")
        for reclaim in self.taken_back.reclaims:
            table.add_row(
                reclaim.pod,
                reclaim.node,
                ", ".join(reclaim.victims),
                f"{reclaim.evicted_after:.2f} s",
                f"{reclaim.freed_after:.2f} s",
                f"{reclaim.bound_after:.2f} s",
                "not yet" if reclaim.running_after is None else f"{reclaim.running_after:.2f} s",
                f"{reclaim.evicted_gpus}/{reclaim.gpus}",
            )
        back = self.taken_back
        table.caption = (
            f"evicted GPUs: {back.evicted_gpus}, requested: {back.requested_gpus}, ratio {back.ratio:.1f}; "
            f"created to running: p50 {back.running_after(0.5):.2f} s, p95 {back.running_after(0.95):.2f} s"
        )
        return table

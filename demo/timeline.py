"""A live timeline of one job: what the cluster says of it and what its pods log, a line for each change."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client.exceptions import ApiException
from rich.console import Console
from rich.text import Text

from demo.journal import Epoch, epochs_of
from demo.kube import Kube, wait_for
from elastic_operator.api.job import GROUP, PLURAL, VERSION

LOOK_SECONDS = 0.5
EPOCHS_PER_LINE = 5


@dataclass
class Timeline:
    """Reads the job again and again; prints what changed."""

    kube: Kube
    namespace: str
    job: str
    console: Console
    started: float = field(default_factory=time.monotonic)
    epochs: list[Epoch] = field(default_factory=list)
    _logs: dict[str, str] = field(default_factory=dict)
    _shown: tuple[str, int, int] = ("", -1, -1)
    _next_epoch: int = 0

    def __post_init__(self) -> None:
        self.core, self.custom = self.kube.apis()

    def say(self, event: str, *, style: str = "") -> None:
        """A line of the timeline: time, event, pods, world size, epoch."""
        _, pods, _ = self._shown
        last = self.epochs[-1] if self.epochs else None
        where = f"pods {max(pods, 0)}  world {last.world_size if last else 0}  epoch {last.number if last else '-'}"
        now = f"{time.monotonic() - self.started:7.1f} s"
        line = Text.assemble((now, "dim"), "  ", (f"{event[:58]:<58}", style), " ", (where, "cyan"))
        self.console.print(line)

    def status(self) -> dict[str, Any]:
        """The job's status, {} before it has one."""
        found = self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, self.job)
        status: dict[str, Any] = found.get("status") or {}
        return status

    def look(self) -> None:
        """Look once."""
        self._read_logs()
        status = self.status()
        ready: dict[str, str] = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
        shown = (ready.get("reason", ""), status.get("replicas", 0), status.get("worldSize", 0))
        if shown != self._shown:
            self._shown = shown
            self.say(f"{shown[0] or 'created'}: {ready.get('message', '')}")
        if self.epochs and self.epochs[-1].number >= self._next_epoch:
            self.say(f"training: epoch {self.epochs[-1].number} on {self.epochs[-1].world_size} processes")
            self._next_epoch = self.epochs[-1].number + EPOCHS_PER_LINE

    def _read_logs(self) -> None:
        """The master's log, through its replacements: each pod's lines are kept after it is gone."""
        try:
            pod = self.core.read_namespaced_pod(f"{self.job}-master-0", self.namespace)
            text = self.core.read_namespaced_pod_log(pod.metadata.name, self.namespace, timestamps=True)
        except ApiException:
            return
        self._logs[pod.metadata.uid] = text or ""  # the client returns None for a log that is still empty
        self.epochs = sorted(
            (epoch for log in self._logs.values() for epoch in epochs_of(log.splitlines())), key=lambda e: e.time
        )

    def until(self, what: str, *, world_size: int, more_epochs: int, seconds: float = 240.0) -> None:
        """Watch until `more_epochs` epochs were trained on `world_size` processes since now."""
        since = self.epochs[-1].time if self.epochs else 0.0

        def reached() -> bool | None:
            self.look()
            done = [e for e in self.epochs if e.time > since and e.world_size == world_size]
            return len(done) >= more_epochs or None

        wait_for(what, reached, seconds=seconds, pause=LOOK_SECONDS)

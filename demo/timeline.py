"""A live timeline of one job, from its status and its pods' logs, with a line for each change."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kubernetes.client.exceptions import ApiException
from rich.console import Console
from rich.text import Text

from demo.journal import Epoch, Journal
from demo.kube import Kube, wait_for
from elastic_api.job import GROUP, PLURAL, VERSION

LOOK_SECONDS = 0.5
EPOCHS_PER_LINE = 5
EVENT_WIDTH = 84


@dataclass
class Timeline:
    """Reads the job repeatedly; prints the changes."""

    kube: Kube
    namespace: str
    job: str
    console: Console
    started: float = field(default_factory=time.monotonic)
    journal: Journal = field(default_factory=Journal)
    _shown: tuple[str, int, int] = ("", -1, -1)
    _next_epoch: int = 0

    def __post_init__(self) -> None:
        self.core, self.custom = self.kube.apis()

    @property
    def epochs(self) -> list[Epoch]:
        """The epochs that the job has trained so far, in order of time."""
        return self.journal.epochs

    def say(self, event: str, *, style: str = "", at: float | None = None) -> None:
        """Print a line: time (`at` seconds after the start, else now), event, pods, world size, epoch."""
        _, pods, _ = self._shown
        last = self.epochs[-1] if self.epochs else None
        trained = f"epoch {last.number} on {last.world_size} processes" if last else "no epoch yet"
        where = f"pods {max(pods, 0)}  {trained}"
        stamp = f"{time.monotonic() - self.started if at is None else at:7.1f} s"
        text = f"{event[:EVENT_WIDTH]:<{EVENT_WIDTH}}"
        self.console.print(Text.assemble((stamp, "dim"), "  ", (text, style), " ", (where, "cyan")))

    def status(self) -> dict[str, Any]:
        """The job's status, {} before it has one or exists."""
        try:
            found = self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, self.job)
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return {}
        status: dict[str, Any] = found.get("status") or {}
        return status

    def look(self) -> None:
        """Look once."""
        self._read_logs()
        status = self.status()
        ready: dict[str, str] = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
        shown = (ready.get("reason", ""), status.get("replicas", 0), status.get("worldSize", 0))
        if status and shown != self._shown:
            self._shown = shown
            self.say(f"{shown[0] or 'created'}: {ready.get('message', '')}")
        if self.epochs and self.epochs[-1].number >= self._next_epoch:
            self.say(f"training: epoch {self.epochs[-1].number} on {self.epochs[-1].world_size} processes")
            self._next_epoch = self.epochs[-1].number + EPOCHS_PER_LINE

    def _read_logs(self) -> None:
        try:
            pod = self.core.read_namespaced_pod(f"{self.job}-master-0", self.namespace)
            text = self.core.read_namespaced_pod_log(pod.metadata.name, self.namespace, timestamps=True)
        except ApiException:
            return
        self.journal.note(pod.metadata.uid, text or "")  # the client returns None for a log that is still empty

    def last_epoch_time(self) -> float:
        """The time at which the last epoch ended, on the clock of the pods; 0.0 before the first one."""
        return self.epochs[-1].time if self.epochs else 0.0

    def trained(self, *, world_size: int, since: float) -> int:
        """The epochs after a time on that many processes."""
        return sum(epoch.time > since and epoch.world_size == world_size for epoch in self.epochs)

    def until(self, what: str, *, world_size: int, more_epochs: int, seconds: float = 240.0) -> None:
        """Watch until `more_epochs` epochs were trained on `world_size` processes since now."""
        since = self.last_epoch_time()

        def reached() -> bool | None:
            self.look()
            return self.trained(world_size=world_size, since=since) >= more_epochs or None

        wait_for(what, reached, seconds=seconds, pause=LOOK_SECONDS)

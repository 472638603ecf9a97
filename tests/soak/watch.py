"""Looks on every two seconds, beside all that happens: samples for the plot, and what must hold at any moment."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.leader import LEASE_PATH, holder_of
from tests.simulate import server as kinds
from tests.simulate.violation import ViolationError
from tests.soak.processes import weights
from tests.soak.stage import Stage
from tests.soak.weight import Weight
from tests.soak.world import WholeSide, alive, gpus_by_team

LOOK_SECONDS = 2.0
FRESH_SECONDS = 3.0
"""A group whose last step is older does not train just now."""
TRACEBACK = "Traceback (most recent call last)"
ROOM = 4000


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at a time, in seconds after the begin; `worlds` are the processes that train, by training."""

    seconds: float
    alive: int
    gpus: dict[str, int]
    worlds: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)


class Watch:
    """A thread of its own. `raise_what_broke` tells what it found wrong, in the thread that asks."""

    def __init__(self, stage: Stage, begun: float) -> None:
        self.stage, self.begun = stage, begun
        self.samples: list[Sample] = []
        self.weights: list[Weight] = []
        self._leader = ""
        self._broken: BaseException | None = None
        self._read: dict[int, int] = {}
        self._end = threading.Event()
        plain = stage.site.cluster.api
        self._server = WholeSide(httpx.Client(base_url=plain.server, verify=plain.context, timeout=5, trust_env=False))
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def start(self) -> None:
        """Look on until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._end.set()
        self._thread.join()

    def raise_what_broke(self) -> None:
        """Raises what a look found, if any."""
        if self._broken is not None:
            raise self._broken

    def _look_on(self) -> None:
        while not self._end.wait(LOOK_SECONDS) and self._broken is None:
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - told where the main thread asks
                self._broken = error

    def _look(self) -> None:
        seconds = time.monotonic() - self.begun
        self.weights += weights(self.stage.site.cluster, seconds, leader=self._leader)
        self._no_traceback()
        try:
            self._leader = self._holder()
            photo = self._server.photo()
        except (httpx.HTTPError, AssertionError):
            return  # the API server is away
        living = len(alive(photo.all(kinds.JOBS)))
        self.samples.append(Sample(round(seconds, 1), living, gpus_by_team(photo), self._worlds()))
        self.stage.world.always(photo)

    def _holder(self) -> str:
        """The uid of the operator's pod that leads, "" if none does."""
        lease = self._server.api.get(LEASE_PATH).raise_for_status().json()["spec"]
        return holder_of(lease) if lease.get("holderIdentity") else ""

    def _worlds(self) -> dict[str, int]:
        found = {}
        for name, training in self.stage.trainings.items():
            steps = training.latest
            fresh = steps is not None and time.monotonic() - steps.time < FRESH_SECONDS
            found[name] = steps.world if steps is not None and fresh else 0
        return found

    def _no_traceback(self) -> None:
        """In no line that any operator has logged since the last look."""
        for file in self.stage.site.logs_of_operators():
            new = self._news(file)
            if TRACEBACK in new:
                at = new.index(TRACEBACK)
                raise ViolationError(f"an operator failed:\n{new[max(0, at - ROOM // 4) : at + ROOM]}")

    def _news(self, file: Path) -> str:
        """What was added to the file; a file keeps its number when it is renamed."""
        try:
            number = file.stat().st_ino
            with file.open("rb") as opened:
                opened.seek(self._read.get(number, 0))
                new = opened.read()
        except OSError:
            return ""
        self._read[number] = self._read.get(number, 0) + len(new)
        return new.decode(errors="replace")

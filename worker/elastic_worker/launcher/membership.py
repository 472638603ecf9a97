"""The line to the coordinator: kept up for the pod's whole life, made again whenever it breaks.

What is so (warm, leaving, which generation runs) is said with each hello, so that a coordinator that starts anew, or
another master's, knows it; what was told of that generation is said then only. What happens is said once, when it
happens.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from elastic_worker import contract, wire
from elastic_worker.coordinator.model import Pod
from elastic_worker.coordinator.part import read_part, to_whole_group
from elastic_worker.protocol.codec import Message, to_line
from elastic_worker.protocol.orders import Group
from elastic_worker.protocol.reports import STATE, Leaving, Runs
from elastic_worker.settings import Settings

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
MOST_RETRY_SECONDS = 0.5
REFUSED_SECONDS = 2.0
QUIET_SECONDS = 30.0
"""A coordinator that cannot be reached is told of once in so long."""

GROUP = "group"
"""In a hello: what the coordinator has told of the generation that runs."""


class Membership:
    """Dials, listens, and hands each message to `heard`, one after the other."""

    def __init__(self, settings: Settings, heard: Callable[[wire.Message], Awaitable[None]]) -> None:
        self._settings, self._heard = settings, heard
        self._state: dict[str, Any] = Runs(0).to_json()
        self._line: wire.Line | None = None
        self._epoch = 0
        self._leaving_at: float | None = None
        self._complained_at = -QUIET_SECONDS
        self.on_line: Callable[[int | None], None] = lambda _epoch: None
        """Told when a coordinator is found, and of which epoch it is; None when it is lost."""

    @property
    def connected(self) -> bool:
        """Whether a coordinator listens now."""
        return self._line is not None

    def know(self, *said: Message) -> None:
        """Keep in mind for each hello, without saying it now."""
        self._state.update(to_line(*said))

    def know_group(self, told: Group) -> None:
        """What the coordinator has told of the generation that runs: each hello brings it."""
        self._state[GROUP] = told

    def tell(self, *said: Message) -> None:
        """Say it now, in one line, if somebody listens; what lasts is said again in each hello."""
        self.know(*(message for message in said if type(message) in STATE))
        for message in said:
            if isinstance(message, Leaving):
                self._leaving_at = time.monotonic() + message.seconds
        if self._line is not None:
            self._line.send(to_line(*said))

    async def run(self) -> None:
        """Until cancelled."""
        wait = RETRY_SECONDS
        while True:
            try:
                await self._attend()
                wait = RETRY_SECONDS
            except wire.RefusedError as error:
                log.warning("the coordinator refuses this pod: %s", error)
                wait = REFUSED_SECONDS
            except (asyncio.TimeoutError, OSError) as error:
                self._complain(error)
            await asyncio.sleep(wait * random.uniform(0.75, 1.25))
            wait = min(2 * wait, MOST_RETRY_SECONDS)

    async def _attend(self) -> None:
        """One line, until it breaks. Raises what `dial` raises; returns where it was up for a while."""
        settings, said = self._settings, self._lasting()
        line, welcome = await wire.dial(
            settings.coordinator_host,
            settings.port,
            token=settings.token,
            say=lambda greeting: self._hello(said, greeting),
        )
        epoch = int(welcome.get("epoch", 0))
        if epoch < self._epoch:
            line.abort()
            raise wire.RefusedError(f"its master's epoch is {epoch}, {self._epoch} was seen already")
        log.info("connected to the coordinator of epoch %d", epoch)
        self._epoch, self._line = epoch, line
        self._tell_what_changed(line, said)
        self.on_line(epoch)
        beat = asyncio.ensure_future(self._beat(line))
        try:
            while True:
                message = await line.receive()
                if set(message) != {"beat"}:
                    await self._take(message)
        except ConnectionError as error:
            log.info("the line to the coordinator broke: %s", error)
        finally:
            beat.cancel()
            self._line = None
            self.on_line(None)
            line.abort()

    async def _take(self, message: wire.Message) -> None:
        """What cannot be read, of a coordinator of another release, ends nobody's training."""
        try:
            await self._heard(message)
        except wire.UNREADABLE as error:
            log.warning("the coordinator says what cannot be read: %r in %.300s", error, message, exc_info=True)

    def _tell_what_changed(self, line: wire.Line, said: wire.Message) -> None:
        """What came to be so while the hello was on its way: else a pod that got warm then is waited for for ever."""
        changed = {key: value for key, value in self._lasting().items() if key not in said or said[key] != value}
        if changed:
            line.send(changed)

    def _lasting(self) -> wire.Message:
        state = dict(self._state)
        if self._leaving_at is not None:
            state.update(Leaving(max(0.0, self._leaving_at - time.monotonic())).to_json())
        return state

    def _hello(self, state: wire.Message, greeting: wire.Message) -> wire.Message:
        settings = self._settings
        pod = Pod(
            settings.pod_uid,
            settings.pod_name,
            settings.address,
            state.get("processes", settings.processes),
            settings.is_master,
            settings.index,
        )
        said = {key: value for key, value in state.items() if key != "processes"}
        if "part" in said.get(GROUP, ()) and not greeting.get(wire.PARTS):
            said[GROUP] = to_whole_group(read_part(said[GROUP], pod.uid), pod)
        return {
            **said,
            "uid": pod.uid,
            "contract": contract.VERSION,
            wire.PARTS: True,
            "job": settings.job_uid,
            "incarnation": settings.incarnation,
            "epoch": self._epoch,
            "pod": dict(vars(pod)),
        }

    async def _beat(self, line: wire.Line) -> None:
        while True:
            line.send({"beat": 1, **{key: self._state[key] for key in ("step", "idle") if key in self._state}})
            await asyncio.sleep(wire.BEAT_SECONDS)

    def _complain(self, error: Exception) -> None:
        if time.monotonic() >= self._complained_at + QUIET_SECONDS:
            self._complained_at = time.monotonic()
            told = str(error) or type(error).__name__
            log.info("no coordinator at %s:%d: %s", self._settings.coordinator_host, self._settings.port, told)

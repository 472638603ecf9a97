"""The connection to the coordinator: it lasts for the pod's whole life, and is restored whenever it breaks.

Each hello contains the pod's state (warm, leaving, which generation runs) and its group, so that a new coordinator, or
another master's, learns both. An event is reported once, when it happens.
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
from elastic_worker.protocol.orders import GenerationRecord
from elastic_worker.protocol.reports import STATE, Leaving, Runs
from elastic_worker.settings import Settings

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
MOST_RETRY_SECONDS = 0.5
REFUSED_SECONDS = 2.0
QUIET_SECONDS = 30.0
"""Time between two log lines on a coordinator that cannot be reached."""

GROUP = "group"
"""Key in a hello: the coordinator's record of the generation that runs."""


class CoordinatorConnection:
    """Connects to the coordinator, and passes each of its messages to `handle`, one after the other."""

    def __init__(self, settings: Settings, handle: Callable[[wire.Message], Awaitable[None]]) -> None:
        self._settings, self._handle = settings, handle
        self._state: dict[str, Any] = Runs(0).to_json()
        self._line: wire.Line | None = None
        self._epoch = 0
        self._leaving_at: float | None = None
        self._logged_at = -QUIET_SECONDS
        self.on_coordinator: Callable[[int | None], None] = lambda _epoch: None
        """Called with the coordinator's epoch when it is connected, and with None when it is lost."""

    @property
    def connected(self) -> bool:
        """Whether the coordinator is connected now."""
        return self._line is not None

    def remember(self, *messages: Message) -> None:
        """Put these messages into the state that each hello contains, without sending them now."""
        self._state.update(to_line(*messages))

    def remember_generation(self, record: GenerationRecord) -> None:
        """Put the coordinator's record of the generation that runs into each hello."""
        self._state[GROUP] = record

    def report(self, *messages: Message) -> None:
        """Send the messages in one line, if connected. Those that describe a state are in each later hello too."""
        self.remember(*(message for message in messages if type(message) in STATE))
        for message in messages:
            if isinstance(message, Leaving):
                self._leaving_at = time.monotonic() + message.seconds
        if self._line is not None:
            self._line.send(to_line(*messages))

    async def run(self) -> None:
        """Keep connecting until cancelled."""
        wait = RETRY_SECONDS
        while True:
            try:
                await self._connect_once()
                wait = RETRY_SECONDS
            except wire.RefusedError as error:
                log.warning("the coordinator refuses this pod: %s", error)
                wait = REFUSED_SECONDS
            except (asyncio.TimeoutError, OSError) as error:
                self._log_rarely(error)
            await asyncio.sleep(wait * random.uniform(0.75, 1.25))
            wait = min(2 * wait, MOST_RETRY_SECONDS)

    async def _connect_once(self) -> None:
        """Keep one connection until it breaks. Raises what `dial` raises; returns if it was up for a while."""
        settings, announced = self._settings, self._current_state()
        line, welcome = await wire.dial(
            settings.coordinator_host,
            settings.port,
            token=settings.token,
            say=lambda greeting: self._hello(announced, greeting),
        )
        epoch = int(welcome.get("epoch", 0))
        if epoch < self._epoch:
            line.abort()
            raise wire.RefusedError(f"its master's epoch is {epoch}, {self._epoch} was seen already")
        log.info("connected to the coordinator of epoch %d", epoch)
        self._epoch, self._line = epoch, line
        self._report_changes(line, announced)
        self.on_coordinator(epoch)
        beat = asyncio.ensure_future(self._beat(line))
        try:
            while True:
                message = await line.receive()
                if set(message) != {"beat"}:
                    await self._handle_or_log(message)
        except ConnectionError as error:
            log.info("the connection to the coordinator broke: %s", error)
        finally:
            beat.cancel()
            self._line = None
            self.on_coordinator(None)
            line.abort()

    async def _handle_or_log(self, message: wire.Message) -> None:
        """Handle a message. An unreadable one is logged, so that another release's coordinator ends no training."""
        try:
            await self._handle(message)
        except wire.UNREADABLE as error:
            log.warning("an order of the coordinator cannot be read: %r in %.300s", error, message, exc_info=True)

    def _report_changes(self, line: wire.Line, announced: wire.Message) -> None:
        """Report what has changed while the hello was on its way: a pod may have become warm then."""
        changed = {
            key: value
            for key, value in self._current_state().items()
            if key not in announced or announced[key] != value
        }
        if changed:
            line.send(changed)

    def _current_state(self) -> wire.Message:
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
        state = {key: value for key, value in state.items() if key != "processes"}
        if "part" in state.get(GROUP, ()) and not greeting.get(wire.PARTS):
            state[GROUP] = to_whole_group(read_part(state[GROUP], pod.uid), pod)
        return {
            **state,
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

    def _log_rarely(self, error: Exception) -> None:
        if time.monotonic() >= self._logged_at + QUIET_SECONDS:
            self._logged_at = time.monotonic()
            why = str(error) or type(error).__name__
            log.info("no coordinator at %s:%d: %s", self._settings.coordinator_host, self._settings.port, why)

"""A replica of the operator: the whole process, with its own line. It can be killed, stopped and frozen."""

from __future__ import annotations

import asyncio
from random import Random

from elastic_operator.cluster.connection import Connection, Credentials
from elastic_operator.cluster.lease import LeaderElector
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.job_informer import JobInformer
from elastic_operator.metrics import Metrics
from elastic_operator.process import Process
from elastic_operator.settings import Settings
from tests.kit.requests import Entry, is_a_write
from tests.simulate.api import Api
from tests.virtual.kopf import Kopf
from tests.virtual.line import Line
from tests.virtual.loop import Place


def _connection() -> Connection:
    return Connection("http://memory", Credentials(lambda: None))


class Replica:
    """One operator process. It runs from its construction on."""

    def __init__(self, name: str, api: Api, settings: Settings, rng: Random, *, who: str = "") -> None:
        self.name, self.line = name, Line(api, rng)
        self.place, self.beside = Place(name), Place(name)
        """The places of its main thread, and of the election's thread."""
        self.process: Process | None = None
        self._stopped = asyncio.Event()
        self.task: asyncio.Task[None] = self.place.run(
            lambda: asyncio.get_running_loop().create_task(self._live(settings, who or name))
        )

    async def _live(self, settings: Settings, who: str) -> None:
        async with self._connect() as session:
            informer = JobInformer(session, Store(), Kopf(session), namespaces=settings.watch_namespaces)
            self.process = Process(settings, session, Metrics(), informer, who=who)
            await self.process.run_until(self._has_stopped(), elect=self._elect)

    def _connect(self) -> Session:
        return Session(_connection(), http=self.line)  # type: ignore[arg-type]

    async def _elect(self, elector: LeaderElector) -> None:
        async with self._connect() as session:
            await self.beside.run(lambda: asyncio.create_task(elector.run(session)))

    async def _has_stopped(self) -> None:
        await self._stopped.wait()

    # -- faults ------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the replica: no later action of it has an effect, not even a log line."""
        self.line.die()
        self.thaw()
        self.task.cancel()

    def stop(self) -> None:
        """Stop the replica, which releases the lease and ends."""
        self._stopped.set()

    def freeze(self) -> None:
        """Stop its tasks while time passes."""
        self.place.frozen = self.beside.frozen = True

    def block(self) -> None:
        """Keep its main thread from its event loop; the other threads continue."""
        self.place.frozen = True

    def thaw(self) -> None:
        """Let the replica continue; it does not know that time has passed."""
        self.place.thaw()
        self.beside.thaw()

    # -- observations ------------------------------------------------------------------------------------------------

    @property
    def lives(self) -> bool:
        """Whether the replica was not killed, and has not ended."""
        return not self.line.dead and not self.task.done()

    @property
    def leads(self) -> bool:
        """Whether the replica holds the lease and decides."""
        process = self.process
        return self.lives and process is not None and process.controller is not None and process.elector.is_leader

    def writes(self, *, since: float = 0.0) -> list[Entry]:
        """The writes that it sent since then, without those of the lease."""
        return self.line.requests(since=since, where=is_a_write)

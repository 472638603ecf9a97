"""kopf hosts the custom resources: their events feed the job store and wake the loop, and that is all they do.

No handler here writes, keeps state or can fail: decisions are the loop's, from the stores. What kopf does not do is
done beside it. It never tells of deletions missed while it was cut off, so a list every minute is compared with the
store; and it ends itself after a minute of server errors, so it is a child that is started again, and its end never
ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import kopf
import msgspec

from elastic_operator.api.job import GROUP, PLURAL, VERSION
from elastic_operator.cluster import objects
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.connection import Connection
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
LOGIN_SECONDS = 600
"""kopf's session carries its token for so long; the kubelet renews service account tokens well before they end."""
JOBS = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
PAGE = 500


class NoDiffs(kopf.DiffBaseStorage):
    """Nothing is remembered on users' objects: no change handler needs it."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        """Nothing."""
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing."""


class NoProgress(kopf.ProgressStorage):
    """Nothing is remembered of handlers: event handlers have no progress."""

    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        """Nothing."""
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Nothing."""
        return essence


class JobFeed:
    """Keeps the store of jobs equal to what the API server holds."""

    def __init__(
        self, connection: Connection, session: Session, store: Store[objects.CustomObject], stop: asyncio.Event
    ) -> None:
        self.connection, self.session, self.store, self.stop = connection, session, store, stop
        self.synced = asyncio.Event()
        self.last_ok = float("-inf")

    def age(self) -> float:
        """Seconds since the API server was last heard of jobs."""
        return time.monotonic() - self.last_ok

    async def run(self) -> None:
        """Feeds until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep_forever())
            group.create_task(self._host_forever())

    async def _host_forever(self) -> None:
        backoff = Backoff()
        while True:
            started = time.monotonic()
            try:
                await kopf.operator(
                    registry=self._registry(),
                    settings=kopf_settings(),
                    clusterwide=True,
                    standalone=True,
                )
            except Exception as error:  # noqa: BLE001 - whatever ends kopf, it is started again
                log.warning("kopf ended; it is started again. error=%r", error)
            else:
                self.stop.set()  # kopf takes the process's signal handlers: it returns, without an error, on a signal
                return
            if time.monotonic() - started > 60:
                backoff.reset()
            await asyncio.sleep(backoff.next())
            await self._sweep()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(self._take)
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        header = await self.connection.credentials.header()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self.connection.tls or True),
            headers={"Authorization": header} if header else {},
        )
        return kopf.AiohttpSession(
            server=self.connection.base_url,
            aiohttp_session=session,
            expiration=datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS),
        )

    async def _take(self, type: str | None, body: kopf.Body, **_: Any) -> None:
        self.last_ok = time.monotonic()
        raw = dict(body)
        if type == "DELETED":
            self.store.observe_deleted(raw["metadata"]["uid"], raw["metadata"]["resourceVersion"])
        else:
            for job in _readable([raw]):
                self.store.observe(job)

    async def _sweep_forever(self) -> None:
        backoff = Backoff()
        while True:
            if await self._sweep():
                backoff.reset()
                await asyncio.sleep(SWEEP_SECONDS)
            else:
                await asyncio.sleep(backoff.next())

    async def _sweep(self) -> bool:
        """Lists all jobs and compares; tells whether it could."""
        newest = self.store.newest()
        try:
            found, revision = await self._list()
        except ClusterError as error:
            log.warning("jobs cannot be listed: %s", error)
            return False
        if int(revision) < newest:
            log.warning("history restarted: jobs of revision %s, known was %d", revision, newest)
            self.store.reset(found)
        else:
            self.store.replace(found, revision)
        self.last_ok = time.monotonic()
        self.synced.set()
        return True

    async def _list(self) -> tuple[list[objects.CustomObject], str]:
        found: list[objects.CustomObject] = []
        more = ""
        while True:
            page = await self.session.get(JOBS, params={"limit": str(PAGE)} | ({"continue": more} if more else {}))
            found += _readable(page["items"])
            more = page["metadata"].get("continue", "")
            if not more:
                return found, page["metadata"]["resourceVersion"]


def _readable(bodies: Iterable[dict[str, Any]]) -> list[objects.CustomObject]:
    """Jobs from their JSON. One that cannot be read is reported and left out: it must not hide the others."""
    found = []
    for body in bodies:
        try:
            found.append(objects.decode(body, objects.CustomObject))
        except msgspec.ValidationError as error:
            log.error("unreadable job %s: %s", body.get("metadata", {}).get("name"), error)  # noqa: TRY400
    return found


def kopf_settings() -> kopf.OperatorSettings:
    """kopf as a feed only: it writes nothing, scans nothing, locks nothing, and gives up on a request in time."""
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = NoDiffs()
    settings.persistence.progress_storage = NoProgress()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.request_timeout = 15
    settings.networking.connect_timeout = 5
    settings.watching.chunk_size = PAGE
    settings.process.ultimate_exiting_timeout = None  # else it kills this process some time after it ended
    return settings


def quiet_kopf() -> None:
    """One line per event handled is no news."""
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    for name in ("kopf.activities", "kopf._core"):
        logging.getLogger(name).setLevel(logging.WARNING)

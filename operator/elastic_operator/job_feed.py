"""kopf feeds the store of jobs: its events go into the store and wake the loop, and nothing else happens here.

No handler writes, keeps state or can fail: the loop decides, from the stores. This module adds what kopf does not do.
kopf does not report deletions that it missed while it was cut off, so the metadata of all jobs is compared with the
store every minute, and whenever kopf lists (169). It ends on answers that it does not expect, so it is a child that is
started again. It takes the process's signal handlers at its start, and cancels all later tasks of its event loop at its
end, so it has a thread and an event loop of its own (2).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import kopf
import msgspec
from msgspec.structs import replace

from elastic_api.job import GROUP, PLURAL, VERSION
from elastic_operator.cluster import objects
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.connection import Connection
from elastic_operator.cluster.lists import FIRST_LIST_SECONDS, PAGE, is_up_to_date, pages
from elastic_operator.cluster.own_loop import run_in_own_loop
from elastic_operator.cluster.reflector import in_namespace
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.waiting import waited_for

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
BETWEEN_SWEEPS_SECONDS = 1.0
"""A list of our own is compared with the store this often. kopf passes on a list of its own object by object."""
LOGIN_SECONDS = 600
"""kopf's session uses its token for this long. The kubelet renews service account tokens well before they end."""
LATEST_HOST_SECONDS = 10.0
"""kopf starts after the first pass, or this long after this process. Its own list costs 1.1 ms of CPU for each job (1),
which a new leader needs for its first decisions; they are made from the list of our own.
"""
JOBS = f"/apis/{GROUP}/{VERSION}/{PLURAL}"


class NoDiffs(kopf.DiffBaseStorage):
    """Remembers nothing on users' objects: no change handler needs it."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        """Nothing."""
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing."""


class NoProgress(kopf.ProgressStorage):
    """Remembers nothing of handlers: event handlers have no progress."""

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


Take = Callable[[str | None, dict[str, Any]], None]
"""Called with each event of a job: the type of the watch event (None for a listed job), and its JSON."""
Host = Callable[[Take], Coroutine[Any, Any, None]]
"""Reports jobs until it ends or fails, and those deletions that it sees."""


class Kopf:
    """kopf as a host, in a thread and an event loop of its own (2). The caller hears of jobs in the
    caller's own loop.
    """

    def __init__(self, connection: Connection, namespaces: Sequence[str]) -> None:
        self.connection, self.namespaces = connection, namespaces

    async def __call__(self, take: Take) -> None:
        """Run until it ends."""
        ours = asyncio.get_running_loop()
        await run_in_own_loop(lambda: self._run(take, ours))

    async def _run(self, take: Take, ours: asyncio.AbstractEventLoop) -> None:
        async def login(**_: Any) -> kopf.AiohttpSession:
            authorization = asyncio.run_coroutine_threadsafe(self.connection.credentials.header(), ours)
            return self._session(await asyncio.wrap_future(authorization))

        async def pass_on(type: str | None, body: kopf.Body, **_: Any) -> None:
            ours.call_soon_threadsafe(take, type, dict(body))

        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(login)
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(pass_on)
        where: dict[str, Any] = {"namespaces": self.namespaces} if self.namespaces else {"clusterwide": True}
        await kopf.operator(registry=registry, settings=kopf_settings(), standalone=True, **where)

    def _session(self, authorization: str | None) -> kopf.AiohttpSession:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self.connection.tls or True),
            headers={"Authorization": authorization} if authorization else {},
        )
        return kopf.AiohttpSession(
            server=self.connection.base_url,
            aiohttp_session=session,
            expiration=datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS),
        )


class JobFeed:
    """Keeps the store of jobs equal to the API server's, in `namespaces` only, or in all if none is named.

    `host` reports the jobs of the connection and these namespaces.
    """

    def __init__(
        self,
        connection: Connection,
        session: Session,
        store: Store[objects.CustomObject],
        *,
        namespaces: Sequence[str] = (),
        host: Callable[[Connection, Sequence[str]], Host] = Kopf,
    ) -> None:
        self.session, self.store = session, store
        self.namespaces = tuple(dict.fromkeys(namespaces))
        self._host = host(connection, self.namespaces)
        self.last_ok = float("-inf")
        self.restarts = self.errors = 0
        """How often kopf was started again, and how many lists failed."""
        self._listed, self._may_host, self._swept = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._running = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The collections that are read."""
        return tuple(in_namespace(JOBS, namespace) for namespace in self.namespaces or ("",))

    def age(self) -> float:
        """Seconds since the last news of jobs from the API server."""
        return time.monotonic() - self.last_ok

    async def run(self) -> None:
        """Feed until cancelled."""
        self._running = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep_forever())
            group.create_task(self._host_forever())

    def decided(self) -> None:
        """A first pass has decided from the store."""
        self._may_host.set()

    async def catch_up(self) -> None:
        """Make the store at least as new as this call; tries until the API server answers."""
        backoff = Backoff()
        if self._running:
            await waited_for(self._swept, FIRST_LIST_SECONDS)
        while True:
            if await self._sweep():
                return
            await asyncio.sleep(backoff.next())

    async def _host_forever(self) -> None:
        backoff = Backoff()
        await waited_for(self._may_host, LATEST_HOST_SECONDS)
        while True:
            started = time.monotonic()
            try:
                await self._host(self._take)
            except Exception as error:  # noqa: BLE001 - whatever ends kopf, it is started again
                log.warning("kopf ended; it is started again. error=%r", error)
            self.restarts += 1
            await asyncio.sleep(backoff.next(worked=time.monotonic() - started))
            await self._sweep()

    def _take(self, type: str | None, raw: dict[str, Any]) -> None:
        self.last_ok = time.monotonic()
        if type is None:  # kopf has listed anew, and does not report what was deleted before that
            self._listed.set()
        if type == "DELETED":
            try:
                self.store.observe_deleted(raw["metadata"]["uid"], raw["metadata"]["resourceVersion"])
            except Exception as error:  # noqa: BLE001 - a list finds out what was deleted
                self._report(raw, error)
                self._listed.set()
        elif (job := self._read(raw)) is not None:
            self.store.observe(job)

    def _read(self, raw: dict[str, Any]) -> objects.CustomObject | None:
        """The job in this JSON. If it cannot be read, it is reported, and its last readable version counts; None if
        there is none.

        Such a job must neither hide the others nor look deleted. One that is to be deleted does not run on by its old
        version.
        """
        try:
            job = objects.decode(raw, objects.CustomObject)
            int(job.metadata.resource_version)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
            self._report(raw, error)
            return self._as_it_was(raw)
        return job

    def _as_it_was(self, raw: dict[str, Any]) -> objects.CustomObject | None:
        """The job's last readable version, with the metadata that can still be read."""
        known = None
        with suppress(LookupError, TypeError, ValueError):
            known = self.store.get(raw["metadata"]["uid"])
            meta = objects.decode(raw["metadata"], objects.CustomMeta)
            int(meta.resource_version)  # the store compares versions as numbers
            if known is not None:
                return replace(known, metadata=replace(meta, generation=known.metadata.generation))
        return known

    def _report(self, raw: object, error: Exception) -> None:
        meta = raw.get("metadata") if isinstance(raw, dict) else None
        name = f"{meta.get('namespace')}/{meta.get('name')}" if isinstance(meta, dict) else "without a name"
        log.error("unreadable job %s: %r", name, error)
        self.store.on_error()

    async def _sweep_forever(self) -> None:
        backoff = Backoff()
        while True:
            self._listed.clear()
            if await self._sweep():
                backoff.reset()
                await asyncio.sleep(BETWEEN_SWEEPS_SECONDS)
                await waited_for(self._listed, SWEEP_SECONDS)  # kopf lists all jobs again
            else:
                await asyncio.sleep(backoff.next())

    async def _sweep(self) -> bool:
        """List all jobs and compare; returns whether that worked."""
        for namespace, path in zip(self.namespaces or ("",), self.paths, strict=True):
            if not await self._sweep_one(namespace, path):
                return False
        self.last_ok = time.monotonic()
        self._swept.set()
        return True

    async def _sweep_one(self, namespace: str, path: str) -> bool:
        """Compare the store with the jobs at `path`, those of `namespace` ("": of all); returns whether that worked."""
        newest = self.store.newest(within=namespace)
        try:
            if newest and await is_up_to_date(self.store, self.session, path, newest=newest, within=namespace):
                return True
            found: list[objects.CustomObject] = []
            async for page in pages(self.session, path):
                found += filter(None, (self._read(msgspec.json.decode(job)) for job in page.items or ()))
            revision = page.metadata.resource_version
            is_older = int(revision) < newest
        except Exception as error:  # noqa: BLE001 - whatever was answered instead of a list, it is asked for again
            self.errors += 1
            log.warning("jobs cannot be listed: %r", error)
            return False
        if is_older:
            log.warning("history restarted: jobs of revision %s, known was %d", revision, newest)
            self.store.reset(found, within=namespace)
        else:
            self.store.replace(found, revision, within=namespace)
        return True


class EndlessPauses:
    """The pauses between kopf's repetitions of one request: growing, jittered, without an end."""

    def __iter__(self) -> Iterator[float]:
        backoff = Backoff()
        while True:
            yield backoff.next()


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
    settings.networking.error_backoffs = EndlessPauses()  # else it ends after a minute of 403 or 5xx
    settings.watching.chunk_size = PAGE
    settings.process.ultimate_exiting_timeout = None  # else it kills this process some time after it ended
    return settings


def quiet_kopf() -> None:
    """Drop kopf's line about each handled event."""
    for name in ("kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # kopf logs that it gets no signals, which is intended, and why it ended, which JobFeed logs.
    logging.getLogger("kopf._core").setLevel(logging.CRITICAL)

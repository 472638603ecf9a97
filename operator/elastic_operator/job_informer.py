"""kopf feeds the store of jobs: its events are put into the store and wake the loop.

This module adds what kopf does not do. kopf does not report deletions that it missed while it was cut off, so the
metadata of all jobs is compared with the store every minute, and whenever kopf lists (169). kopf ends on unexpected
answers, so it runs as a child that is started again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from elastic_api.job import GROUP, PLURAL, VERSION
from elastic_operator.cluster import objects
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.errors import WITHOUT_RIGHTS, Forbidden
from elastic_operator.cluster.lists import FIRST_LIST_SECONDS, drop_deleted_and_compare, pages
from elastic_operator.cluster.reflector import Stats, in_namespace
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.waiting import wait_while_it_advances, wait_with_timeout

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
"""A list of our own is compared with the store this often."""
BETWEEN_SWEEPS_SECONDS = 1.0
"""The least pause between two sweeps."""
LATEST_WATCH_SECONDS = 10.0
"""kopf starts after the first pass, or this long after this process. A new leader needs the CPU for its first
decisions, which are made from the operator's own list.
"""
FORBIDDEN_SECONDS = 60.0
"""If the jobs of a namespace could not be listed for lack of the right for this long, it counts as not served (188)."""
JOBS = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
NO_JOB = {"fieldSelector": "metadata.name=-"}
"""Selects no job, because no object can have this name."""
WATCH_SECONDS = 45
"""Each watch of kopf ends after this time, and the next one continues it. Each answer shows that kopf works (172)."""


decode_job = msgspec.json.Decoder(objects.CustomObject, dec_hook=objects.pack).decode

WatchSource = Callable[["JobInformer"], Coroutine[Any, Any, None]]
"""A watch that tells the informer what has happened since its own last list, until it ends or fails."""


class JobInformer:
    """The informer of jobs (client-go). It keeps the store of jobs equal to the API server's.

    That is the jobs of `namespaces` only, or of all if none is named.
    `source` reports the jobs of these namespaces.
    """

    def __init__(
        self,
        session: Session,
        store: Store[objects.CustomObject],
        source: WatchSource,
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        self.session, self.store, self._source = session, store, source
        self.namespaces = tuple(dict.fromkeys(namespaces))
        self._answered_at = dict.fromkeys(self.namespaces or ("",), float("-inf"))
        """When the API server last answered a list or a watch of these jobs (monotonic), by namespace; "": of all."""
        self.restarts = 0
        """How often kopf was restarted."""
        self.stats = Stats()
        """Of these, only the errors count: the lists that failed."""
        self.is_gone: Callable[[str], bool] = lambda _: False
        """Whether the namespace of that name counts as one without jobs, although a list there is refused."""
        self._forbidden_since: dict[str, float] = {}
        """The first of the lists that were all refused for lack of the right (monotonic), by namespace."""
        self._listed, self._may_watch, self._swept = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._running = False
        self._pages = 0
        """The pages of lists of whole jobs that were read."""
        self._as_of = float("-inf")
        """When the latest sweep that worked began (monotonic): the store is at least as new."""
        self._listed_at = float("-inf")
        """When kopf last listed (monotonic). The store may lack what came before, until a later sweep has worked."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(in_namespace(JOBS, namespace) for namespace in self._answered_at)

    def age(self) -> float:
        """Seconds since the last news of jobs from the API server, of the namespace where that is longest ago."""
        return time.monotonic() - min(self._answered_at.values())

    def is_forbidden(self, namespace: str) -> bool:
        """Whether the operator has lacked the right to list the jobs of this namespace for `FORBIDDEN_SECONDS`."""
        since = self._forbidden_since.get(namespace)
        return since is not None and time.monotonic() - since >= FORBIDDEN_SECONDS

    def revisions(self) -> dict[str, int]:
        """The checksum of the jobs in the store, by collection."""
        return {in_namespace(JOBS, namespace): self.store.checksum(within=namespace) for namespace in self._answered_at}

    def newest(self) -> int:
        """The highest resourceVersion in the store."""
        return self.store.newest()

    def has_seen(self, revisions: Mapping[str, int]) -> bool:
        """Whether the store equals that of the replica which has handed these `revisions` over (213). kopf handles the
        events of different jobs in no order, so the newest one does not show that the others have been seen.
        """
        return self._swept.is_set() and self.revisions().items() <= revisions.items()

    async def run(self) -> None:
        """Feed until cancelled."""
        self._running = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep_forever())
            group.create_task(self._watch_forever())

    def decided(self) -> None:
        """Note that a first pass has decided from the store."""
        self._may_watch.set()

    async def catch_up(self, since: float | None = None) -> None:
        """Make the store at least as new as `since` (monotonic; by default now); tries until the API server answers."""
        since = time.monotonic() if since is None else since
        backoff = Backoff()
        if self._running:
            await wait_while_it_advances(self._swept, FIRST_LIST_SECONDS, lambda: self._pages)
        while True:
            if self._as_of > since or await self._sweep():
                return
            await asyncio.sleep(backoff.next())

    async def _watch_forever(self) -> None:
        backoff = Backoff()
        await wait_with_timeout(self._may_watch, LATEST_WATCH_SECONDS)
        while True:
            started = time.monotonic()
            try:
                await self._source(self)
            except Exception as error:  # noqa: BLE001 - whatever ends kopf, it is started again
                log.warning("kopf ended and is restarted error=%r", error)
            self.restarts += 1
            await asyncio.sleep(backoff.next(worked=time.monotonic() - started))
            await self._sweep()

    def take_list(self) -> None:
        """Note that kopf has listed: it reports nothing from before that list."""
        self._listed_at = time.monotonic()
        self._listed.set()

    def take_answer(self, namespace: str) -> None:
        """Note that the API server has answered kopf's watch of that namespace ("": of all): kopf has reported all that
        has happened there since its list.
        """
        if self._as_of >= self._listed_at:
            self._answered_at[namespace] = time.monotonic()

    def take_event(self, type: str | None, raw: dict[str, Any]) -> None:
        """Take an event of kopf's watch: its type, and the job as JSON."""
        if type == "DELETED":
            try:
                meta = raw["metadata"]
                self.store.observe_deleted(meta["uid"], meta["resourceVersion"], namespace=meta["namespace"])
            except Exception as error:  # noqa: BLE001 - a list finds out what was deleted
                self._report(raw, error)
                self._listed.set()
        elif (job := self._read(raw)) is not None:
            self.store.observe(job)

    def _read(self, raw: dict[str, Any]) -> objects.CustomObject | None:
        """The job in this JSON. If it is unreadable, that is reported, and its last readable version counts.

        An unreadable job must neither hide the others nor look deleted. If it is being deleted, it does not run on.
        """
        try:
            return _checked(objects.decode(raw, objects.CustomObject))
        except Exception as error:  # noqa: BLE001 - any error is handled as an error of this job only
            self._report(raw, error)
            return self._last_readable_version(raw)

    def _read_listed(self, item: msgspec.Raw) -> objects.CustomObject | None:
        """The job in an item of a list, as `_read` returns it, decoded without the fields that nobody reads."""
        try:
            return _checked(decode_job(item))
        except Exception:  # noqa: BLE001 - `_read` handles and reports it
            return self._read(msgspec.json.decode(item))

    def _last_readable_version(self, raw: dict[str, Any]) -> objects.CustomObject | None:
        """The job's last readable version, with the metadata that can still be read."""
        stored = None
        with suppress(LookupError, TypeError, ValueError):
            stored = self.store.get(raw["metadata"]["uid"])
            meta = objects.decode(raw["metadata"], objects.CustomMeta)
            int(meta.resource_version)  # the store compares versions as numbers
            if stored is not None:
                return replace(stored, metadata=replace(meta, generation=stored.metadata.generation))
        return stored

    def _report(self, raw: object, error: Exception) -> None:
        meta = raw.get("metadata") if isinstance(raw, dict) else None
        name = f"{meta.get('namespace')}/{meta.get('name')}" if isinstance(meta, dict) else "without a name"
        log.error("cannot read a job job=%s error=%r", name, error)
        self.store.on_error()

    async def _sweep_forever(self) -> None:
        backoff = Backoff()
        while True:
            self._listed.clear()
            if await self._sweep():
                backoff.reset()
                await asyncio.sleep(BETWEEN_SWEEPS_SECONDS)
                await wait_with_timeout(self._listed, SWEEP_SECONDS)
            else:
                await asyncio.sleep(backoff.next())

    async def _sweep(self) -> bool:
        """List all jobs and compare them with the store; returns whether that worked, in every namespace."""
        began, worked = time.monotonic(), True
        for namespace in self._answered_at:
            if await self._sweep_one(namespace):
                self._answered_at[namespace] = time.monotonic()
            else:
                worked = False
        if not worked:
            return False
        self._as_of = max(self._as_of, began)  # sweeps run beside each other, and the slowest ends last
        self._swept.set()
        return True

    async def _sweep_one(self, namespace: str) -> bool:
        """Compare the store with the jobs of `namespace` ("": of all); returns whether that worked."""
        try:
            await self._compare(namespace)
        except Exception as error:  # noqa: BLE001 - whatever was answered instead of a list, it is asked for again
            if isinstance(error, Forbidden):
                self._forbidden_since.setdefault(namespace, time.monotonic())
            else:
                self._forbidden_since.pop(namespace, None)
            if isinstance(error, WITHOUT_RIGHTS) and self.is_gone(namespace):
                # If the namespace is deleted, its jobs were deleted before it. The pods count as those of deleted jobs.
                self.store.forget_all(within=namespace)
                return True
            self.stats.errors += 1
            log.warning("cannot list jobs error=%r", error)
            return False
        self._forbidden_since.pop(namespace, None)
        return True

    async def _compare(self, namespace: str) -> None:
        """Make the store equal to the jobs of `namespace` ("": of all). Raises any error of the list."""
        path = in_namespace(JOBS, namespace)
        newest = self.store.newest(within=namespace)
        if newest and await drop_deleted_and_compare(self.store, self.session, path, newest=newest, within=namespace):
            return
        found: list[objects.CustomObject] = []
        async with aclosing(pages(self.session, path)) as listed:
            async for page in listed:
                self._pages += 1
                found += filter(None, map(self._read_listed, page.items or ()))
        revision = page.metadata.resource_version
        if int(revision) < newest:
            log.warning("the API server's history restarted kind=jobs revision=%s known=%d", revision, newest)
            self.store.reset(found, within=namespace)
        else:
            self.store.replace(found, revision, within=namespace)


def _checked(job: objects.CustomObject) -> objects.CustomObject:
    """The job. Raises ValueError if its resourceVersion is no number: versions are compared."""
    int(job.metadata.resource_version)
    return job

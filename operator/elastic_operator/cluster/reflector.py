"""Keeps a `Store` equal to the API server's objects of one kind (client-go: informer): lists once, then watches.

A failure on the way (a history too old, refusals, overload, a stream that falls silent or breaks) costs a growing
pause, but never a busy loop and never a lost deletion: every list is compared with the store. `age` says how long ago
the server was last heard; the caller decides whether that is fresh enough to act on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Generic

import aiohttp
import msgspec

from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.errors import WITHOUT_RIGHTS, ClusterError, Expired, NotServed, Unreachable, error_event
from elastic_operator.cluster.lists import FIRST_LIST_SECONDS, drop_deleted_and_compare, pages
from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.objects import pack
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store, T
from elastic_operator.cluster.waiting import wait_while_it_advances
from elastic_operator.cluster.wire import BareMeta, decode_bare, decode_event

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
SERVICES = "/api/v1/services"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
RESOURCE_QUOTAS = "/api/v1/resourcequotas"
ENDPOINT_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"

INACTIVITY_SECONDS = 70.0
"""After this silence a stream counts as dead: the API server sends a bookmark about once a minute, if asked to."""
ABSENT_SECONDS = 10.0
"""The pause between requests for a kind that the server does not serve yet, and in a namespace that counts as empty."""
_WATCH_SECONDS = (240, 480)
"""The server ends a watch after a random time in this range, so that not all end at once."""
_YIELD_EVERY = 200
"""After this many events other tasks have their turn, so that a storm of events does not hold them up."""
_SHORT_SECONDS = 1.0
_RELIST_AFTER = 3
"""After this many failed watches in a row without one event, the resourceVersion itself may be wrong."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stats:
    """Counters for metrics. `relists` are the lists after the first complete one."""

    relists: int = 0
    events: int = 0
    errors: int = 0


class Reflector(Generic[T]):
    """One kind's list and watch.

    Args:
        path: The collection, such as `PODS`.
        namespace: Only objects of that namespace are read; "" for all.
        type_: The type that its objects are decoded into.
        params: Query parameters of list and watch, such as a field selector.
        optional: While the kind's definition is not installed, the server does not serve it. It then has no objects;
            that is news from the server, and no failure.
        is_gone: Whether the namespace of that name counts as empty if a list in it is refused, for example because
            the namespace is deleted, and with it the Role that granted the right. That is news as well.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        type_: type[T],
        *,
        namespace: str = "",
        store: Store[T] | None = None,
        params: Mapping[str, str] | None = None,
        optional: bool = False,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.path = in_namespace(path, namespace)
        self._namespace = namespace
        self.store: Store[T] = Store() if store is None else store
        self.synced = asyncio.Event()
        self.last_ok = float("-inf")
        self.stats = Stats()
        self._session = session
        self._decode = msgspec.json.Decoder(type_, dec_hook=pack).decode
        self._params = dict(params or {})
        self._backoff = Backoff()
        self._optional, self._absent = optional, False
        self._is_gone = is_gone
        self._revision = ""
        self._highest = 0
        self._silences = 0
        self._running = False
        self._pages = 0
        """The pages of lists that were read."""
        self._as_of = float("-inf")
        """When the last complete list was requested (monotonic): the store is at least as new."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The collection that the reflector reads."""
        return (self.path,)

    def age(self) -> float:
        """Seconds since the server was last heard; infinite before the first list."""
        return time.monotonic() - self.last_ok

    async def run(self) -> None:
        """List and watch until cancelled. `synced` is set by the first complete list."""
        self._running = True
        while True:
            try:
                if not self._revision:
                    await self._list()
                await self._watch()
            except Expired as error:
                self._revision = ""
                await self._pause(error)
            except ClusterError as error:
                if self._is_absent(error):
                    await asyncio.sleep(ABSENT_SECONDS)
                else:
                    await self._pause(error)
            except Exception as error:
                log.exception("reflector failed path=%s", self.path)
                self._revision = ""
                await self._pause(error)

    async def catch_up(self, since: float | None = None) -> None:
        """Make the store at least as new as `since` (monotonic; by default now). Tries until the server answers."""
        since = time.monotonic() if since is None else since
        backoff, where = Backoff(), (self.store, self._session, self.path)
        compare = partial(drop_deleted_and_compare, *where, within=self._namespace, params=self._params)
        if self._running:
            await wait_while_it_advances(self.synced, FIRST_LIST_SECONDS, lambda: self._pages)
        while True:
            try:
                if self._as_of <= since and not (self.synced.is_set() and await compare(newest=self.newest())):
                    await self._list()
            except ClusterError as error:
                if self._is_absent(error):
                    return
                await asyncio.sleep(backoff.next(at_least=error.retry_after))
            else:
                return

    def revisions(self) -> dict[str, int]:
        """The version of the last change in the store, by collection."""
        return {self.path: self.store.last_change(within=self._namespace)}

    def has_seen(self, revisions: Mapping[str, int]) -> bool:
        """Whether the store is as new as that of the replica which has handed these `revisions` over (213). A watch
        brings the changes of its collection in their order. False while the objects are listed.
        """
        seen, is_up_to_date = revisions.get(self.path), bool(self._revision) or self._absent
        return seen is not None and is_up_to_date and self._highest >= seen

    def newest(self) -> int:
        """The highest known resourceVersion. No later list is older than that, unless history restarts."""
        return max(self._highest, self.store.newest(within=self._namespace))

    def _is_absent(self, error: ClusterError) -> bool:
        """Whether by this answer no such objects exist: the kind is not served, or the namespace counts as empty."""
        not_served = self._optional and isinstance(error, NotServed)
        if not not_served and not (isinstance(error, WITHOUT_RIGHTS) and self._is_gone(self._namespace)):
            return False
        if not self._absent:
            what = "kind not served" if not_served else "namespace deleted or without the operator's Role"
            log.warning("%s path=%s retry_in=%.0fs", what, self.path, ABSENT_SECONDS)
        self._absent, self._revision, self.last_ok = True, "", time.monotonic()
        self.store.forget_all(within=self._namespace)
        self.synced.set()
        return True

    async def _pause(self, error: Exception) -> None:
        self.stats.errors += 1
        if self._backoff.failures >= _RELIST_AFTER:
            self._revision = ""
        seconds = self._backoff.next(at_least=error.retry_after if isinstance(error, ClusterError) else None)
        level = logging.DEBUG if isinstance(error, Expired) else logging.WARNING
        log.log(level, "watch interrupted path=%s retry_in=%.1fs reason=%s", self.path, seconds, error)
        await asyncio.sleep(seconds)

    async def _list(self) -> None:
        self.stats.relists += self.synced.is_set()
        floor, began = self.newest(), time.monotonic()
        seen: set[str] = set()
        anew: list[T] = []
        async with aclosing(pages(self._session, self.path, params=self._params)) as listed:
            async for page in listed:
                self._pages += 1
                revision = page.metadata.resource_version
                restarted = int(revision) < floor
                for raw in page.items or ():
                    meta, obj = self._read(raw)
                    seen.add(meta.uid)
                    if obj is not None:
                        (anew.append if restarted else self.store.observe)(obj)
                await asyncio.sleep(0)
        if restarted:
            log.warning("the API server's history restarted path=%s revision=%s known=%d", self.path, revision, floor)
            self._highest = 0
            self.store.reset(anew, within=self._namespace)
        else:
            self.store.observe_list(seen, revision, within=self._namespace)
        self._absent, self._as_of = False, began
        self._advance(revision)
        self.synced.set()

    async def _watch(self) -> None:
        """Watch until the server ends it. An end at once or without news counts as a failure: no busy loop follows."""
        begun, before = time.monotonic(), self.stats.events
        params = self._params | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._revision,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),
        }
        async with self._session.stream(self.path, params=params, inactivity=INACTIVITY_SECONDS) as stream:
            self.last_ok = time.monotonic()
            try:
                async for line in self._lines(stream):
                    self._on_event(line)
                    self.stats.events += 1
                    self._silences = 0
                    self._backoff.reset()
                    if self.stats.events % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)
            except TimeoutError:
                self._on_silence()
                return
        if self.stats.events == before or time.monotonic() - begun < _SHORT_SECONDS:
            raise Unreachable(f"WATCH {self.path}: ended early")

    def _on_silence(self) -> None:
        """Handle a silent stream. For a kind that never changes, the server may send nothing at all.

        So silence is no failure. A new stream, opened at once, shows whether the old one was dead. If the silence goes
        on, a list shows it: the server is also silent about a resourceVersion that its history has not reached.
        """
        self._backoff.reset()
        self._silences += 1
        if self._silences >= _RELIST_AFTER:
            self._silences, self._revision = 0, ""

    async def _lines(self, stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        rest = b""
        async for data in stream.iter_any():
            self.last_ok = time.monotonic()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line:
                    yield line

    def _on_event(self, line: bytes) -> None:
        event = decode_event(line)
        if event.type == "ERROR":
            raise error_event(bytes(event.object))
        if event.type in ("ADDED", "MODIFIED"):
            meta, obj = self._read(event.object)
            if obj is not None:
                self.store.observe(obj)
        else:
            meta = decode_bare(event.object).metadata
            if event.type == "DELETED":
                self.store.observe_deleted(meta.uid, meta.resource_version, namespace=meta.namespace)
        self._advance(meta.resource_version)

    def _read(self, raw: msgspec.Raw) -> tuple[Meta | BareMeta, T | None]:
        """Decode an object. An unreadable one is reported and left out, so that all others are still seen."""
        try:
            obj = self._decode(raw)
        except msgspec.ValidationError as error:
            meta = decode_bare(raw).metadata
            self.store.on_error()
            text = "cannot read an object path=%s namespace=%s name=%s reason=%s"
            log.error(text, self.path, meta.namespace, meta.name, error)  # noqa: TRY400 - the message says all
            return meta, None
        return obj.metadata, obj

    def _advance(self, revision: str) -> None:
        self.last_ok = time.monotonic()
        self._revision = revision
        self._highest = max(self._highest, int(revision))


def in_namespace(path: str, namespace: str) -> str:
    """The path of a collection, limited to that namespace; "" leaves it as it is."""
    if not namespace:
        return path
    group, _, plural = path.rpartition("/")
    return f"{group}/namespaces/{namespace}/{plural}"

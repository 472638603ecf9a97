"""Writes events on jobs (events.k8s.io/v1): each once, repeated ones counted, and without delaying a pass.

`record` only puts an event into a bounded queue; a task of its own writes. If the API server cannot take an event now,
the event is tried again later. An event that does not fit, exceeds its job's rate, or is refused, is dropped and
counted. Events are only for readers; the status is complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from elastic_api.job import API_VERSION, GROUP, KIND
from elastic_operator.attempts import doubled
from elastic_operator.cluster.errors import AlreadyExists, ClusterError, NotFound, RetryPolicy
from elastic_operator.cluster.lease import micro_time
from elastic_operator.cluster.meta import Struct
from elastic_operator.cluster.pod import Pod
from elastic_operator.cluster.rate_limit import TokenBucket
from elastic_operator.cluster.session import Session
from elastic_operator.plan.facts.decisions import Event

CONTROLLER = f"{GROUP}/operator"
QUEUE = 1000
"""The most events that are queued, and the most that wait for another try."""
MAX_TRIES = 5
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 30.0
"""How often an event is tried that the API server cannot take, and how long it waits in between: at first, and doubled
each time up to the longest. client-go tries 12 times, every 10 seconds.
"""
MAX_SERIES = 4096
"""The most events whose repetitions are remembered. Of more jobs, those whose rate is not in use are forgotten."""
SERIES_SECONDS = 600.0
"""An event that is repeated within this time counts as the same one; later it is a new one."""
BURST = 25
REFILL_SECONDS = 6.0
"""A job may have BURST events at once, and one more each time these seconds have passed."""
_MAX_NOTE = 1024
"""Bytes in UTF-8. The API server refuses an event with a longer note, and one with too long a name."""
_MAX_NAME = 253
_MAX_DIGEST = 16

log = logging.getLogger(__name__)


class Subject(Struct, frozen=True):
    """The object of an event, as the event names it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


def job_subject(namespace: str, name: str, uid: str) -> Subject:
    return Subject(API_VERSION, KIND, namespace, name, uid)


def pod_subject(pod: Pod) -> Subject:
    return Subject("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


@dataclass(slots=True)
class _Series:
    """An event, and how often it was recorded: at first at `first`, at last at `last` (epoch seconds), which was `seen`
    on the monotonic clock. `written` lags behind `count` while one is queued.
    """

    subject: Subject
    event: Event
    first: float
    last: float
    seen: float
    count: int = 0
    written: int = 0


class EventRecorder:
    """Writes events. `instance` names this process. `on_drop` is called for each event that is dropped."""

    def __init__(self, session: Session, *, instance: str, on_drop: Callable[[], None] = lambda: None) -> None:
        self._on_drop = on_drop
        self._session = session
        self._instance = instance
        self._queue: asyncio.Queue[tuple[tuple[str, Event], int]] = asyncio.Queue()
        """The keys of events, and how often each was tried. An event that is tried again is queued whatever the length.
        """
        self._waiting = 0
        """The number of events that wait for another try."""
        self._series: OrderedDict[tuple[str, Event], _Series] = OrderedDict()
        self._rates = TokenBucket(BURST, REFILL_SECONDS, now=time.monotonic)

    def record(self, subject: Subject, event: Event) -> None:
        """Queue `event` of that object, to be written soon."""
        if self._queue.qsize() >= QUEUE or not self._rates.has(subject.uid):
            self._on_drop()
            return
        self._rates.take(subject.uid)
        now, wall = time.monotonic(), self._session.clock.time()
        key = subject.uid, event
        series = self._series.pop(key, None)
        if series is None or now - series.seen >= SERIES_SECONDS:
            series = _Series(subject, event, first=wall, last=wall, seen=now)
        series.count, series.last, series.seen = series.count + 1, wall, now
        self._series[key] = series
        self._drop_old(now)
        self._queue.put_nowait((key, 0))

    def _drop_old(self, now: float) -> None:
        """Forget events whose repetition would count as a new event; the oldest are in front. If there are many jobs,
        forget the rates of those that have used up nothing.
        """
        if len(self._rates) > MAX_SERIES:
            self._rates.forget_full()
        while len(self._series) > MAX_SERIES or now - next(iter(self._series.values())).seen > SERIES_SECONDS:
            self._series.popitem(last=False)

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            key, tries = await self._queue.get()
            try:
                await self._write(key, tries)
            except ClusterError as error:
                self._retry_or_drop(key, tries + 1, error)
            except Exception:
                self._on_drop()
                log.exception("an event was not written")
            finally:
                self._queue.task_done()

    def _retry_or_drop(self, key: tuple[str, Event], tries: int, error: ClusterError) -> None:
        if error.retry_policy is not RetryPolicy.RETRY or tries >= MAX_TRIES or self._waiting >= QUEUE:
            self._on_drop()
            log.debug("an event was not written reason=%s", error)
            return
        self._waiting += 1
        wait = max(doubled(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, tries), error.retry_after or 0.0)
        asyncio.get_running_loop().call_later(wait, self._retry, key, tries)

    def _retry(self, key: tuple[str, Event], tries: int) -> None:
        self._waiting -= 1
        self._queue.put_nowait((key, tries))

    async def flush(self, timeout: float = 2.0) -> None:
        """Wait until all is written, but no longer than this many seconds; `run` must be running."""
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            log.info("events were not written before the end count=%d", self._queue.qsize())

    async def _write(self, key: tuple[str, Event], tries: int) -> None:
        series = self._series.get(key)
        if series is None:  # it was forgotten before it was written
            self._on_drop()
            return
        if series.written == series.count and not tries:
            return
        # Before the request: an event that is recorded meanwhile is queued again.
        is_repeated, series.written = series.written > 0 and series.count > 1, series.count
        collection = f"/apis/events.k8s.io/v1/namespaces/{series.subject.namespace}/events"
        if is_repeated:
            try:
                await self._session.patch(f"{collection}/{self._name(series)}", {"series": _count(series)})
            except NotFound:
                log.debug("an event expired before it was repeated; it is written again")
            else:
                return
        with suppress(AlreadyExists):
            await self._session.post(collection, self._body(series))

    def _body(self, series: _Series) -> dict[str, Any]:
        event, subject = series.event, series.subject
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self._name(series), "namespace": subject.namespace},
            "eventTime": micro_time(series.first),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "type": event.type,
            "reason": event.reason,
            "note": _cut(event.message),
            "regarding": msgspec.to_builtins(subject),
            **({"series": _count(series)} if series.count > 1 else {}),
        }

    def _name(self, series: _Series) -> str:
        """A name that is equal for a repeated request, and unique to the event."""
        event = series.event
        identity = (series.subject.uid, self._instance, event.type, str(event.reason), event.message)
        digest = hashlib.sha256(repr((*identity, series.first)).encode()).hexdigest()
        about = series.subject.name[: _MAX_NAME - _MAX_DIGEST - 1].rstrip("-.")  # each part of it ends with a letter
        return f"{about}.{digest[:_MAX_DIGEST]}"


def _cut(note: str) -> str:
    """The beginning of the text, as much as an event may hold; no character is cut in two."""
    if len(encoded := note.encode()) <= _MAX_NOTE:
        return note
    return encoded[: _MAX_NOTE - 3].decode(errors="ignore") + "..."


def _count(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": micro_time(series.last)}

"""Elects the leader among the operator's replicas: the holder of a Lease, which it renews in time. In client-go's
words: leader election with LeaseDuration, RenewDeadline and RetryPeriod (`LeaseTiming`).

Clocks of two machines are never compared. A holder counts as dead when its Lease has not changed for the Lease's
duration by the observer's monotonic clock. A leader stops itself (`remaining` falls to zero) when its last successful
renewal was *begun* longer ago than `renew_deadline_seconds`. That is shorter, so it has stopped before another takes
over. Its clock counts the time in which its machine is suspended, because the others' clocks do not stop then.

A thread of its own renews the Lease, so that a long turn of the event loop that does the work does not lose it. That
loop gives signs of life (heartbeats). When they stop, the Lease is given up, because the loop may be stuck (90).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.errors import AlreadyExists, ClusterError, Conflict, NotFound
from elastic_operator.cluster.own_loop import run_in_own_loop
from elastic_operator.cluster.session import Session

ANNOTATION_REVISIONS = "elastic-pytorch.dev/seen-revisions"
"""Written when the Lease is handed back: the holder, and what it has seen of each collection (213): the version of the
last change, and of the jobs a checksum.
"""
_MAX_REVISIONS = 200_000
"""The most bytes of revisions; the API server allows 262,144 for all annotations of an object."""
_READ_SECONDS = 4.0
_POLL_AGAIN_SECONDS = 5.0
"""The longest pause of a candidate without answers: it may lead this much after the API server answers again."""
_LEAST_SECONDS = 0.001
"""asyncio may fire a timer up to one clock resolution early. Without this pause, the last nanosecond of a lease would
be spent on one failed renewal after another.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds. renew_deadline < lease_duration; renew + retry < renew_deadline, so one failed renewal costs nothing.

    The lease is given up `stuck_seconds` after the last heartbeat: ten times the longest turn measured, and the time
    that the kubelet's probe waits. A long turn must not reach it: another replica would need as long for it (90).
    """

    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    renew_seconds: float = 5.0
    retry_period_seconds: float = 2.0
    poll_seconds: float = 1.0
    stuck_seconds: float = 60.0

    def __post_init__(self) -> None:
        assert (
            self.renew_seconds + self.retry_period_seconds < self.renew_deadline_seconds < self.lease_duration_seconds
        )


class _HandOver(msgspec.Struct):
    """The annotation: the holder that has handed the Lease back, and what it has seen."""

    holder: str
    revisions: Mapping[str, int]


class _HeldByOtherError(Exception):
    """Another replica holds the Lease."""


class LeaderElector:
    """Takes the Lease `namespace/name` for `identity`, which no other living process may have.

    It is created in the event loop that does the work. This loop reads `remaining` and beats; `run` may use the loop of
    another thread. The two threads share one number in each direction: `deadline`, and the time of the last heartbeat.
    """

    def __init__(self, *, namespace: str, name: str, identity: str, timing: LeaseTiming | None = None) -> None:
        self.identity = identity
        self.deadline = -math.inf
        self._work = asyncio.get_running_loop()
        self._heartbeat_at = time.monotonic()
        self._session: Session
        self.revisions: Mapping[str, int] = {}
        """The revisions that this replica has seen, by collection. It hands these over with the Lease."""
        self.handed_over: Mapping[str, int] = {}
        """The same of the last holder, if it has handed the Lease back while this replica stood by; else empty."""
        self._namespace, self._name = namespace, name
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._timing = timing or LeaseTiming()
        self.known = asyncio.Event()
        """Set once the API server has named the leader, or could not be asked."""
        self._leading, self._since = asyncio.Event(), math.inf
        self._lease: dict[str, Any] | None = None
        self._seen_revision = ""
        self._seen_at = 0.0
        self._seen_holder = ""

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """How many seconds this process may still write; zero or less if it does not lead."""
        return self.deadline - _since_boot()

    async def wait_until_leading(self) -> float:
        """Return once this process leads. Returns the time (monotonic) from which no other replica writes."""
        await self._leading.wait()
        return self._since

    def heartbeat(self) -> None:
        """A sign of life of the work. The loop that does it must call this every few seconds."""
        self._heartbeat_at = time.monotonic()

    async def run(self, session: Session) -> None:
        """Take the Lease, renew it over `session`, and return when it is lost. To lead again takes a new Elector.

        If cancelled, it hands the Lease back. The last write must have ended before (80).
        """
        self._session = session
        try:
            await self._acquire()
            await self._keep()
        except asyncio.CancelledError:
            if self.is_leader:
                self.deadline = -math.inf
                await self._release()
            raise
        finally:
            self.deadline = -math.inf

    async def _release(self) -> None:
        """Let the next replica take over at once."""
        try:
            lease = await self._read()
            if lease is not None and _spec(lease).get("holderIdentity") == self.identity:
                text = msgspec.json.encode(_HandOver(self.identity, self.revisions)).decode()
                noted = {ANNOTATION_REVISIONS: text} if len(text) < _MAX_REVISIONS else {}
                await self._put(lease, {"holderIdentity": "", "leaseDurationSeconds": 1}, noted)
                log.info("lease released identity=%s", self.identity)
        except Exception as error:
            text = "lease not released; the next leader waits until it expires reason=%s"
            log.warning(text, error, exc_info=_unexpected(error))

    async def _acquire(self) -> None:
        backoff = Backoff(first=self._timing.poll_seconds, most=_POLL_AGAIN_SECONDS)
        while True:
            try:
                if not self._is_stuck() and await self._try_to_acquire():
                    break
                backoff.reset()
                pause = self._timing.poll_seconds * random.uniform(0.8, 1.2)
            except Exception as error:
                pause = backoff.next(at_least=error.retry_after if isinstance(error, ClusterError) else None)
                level = logging.WARNING if backoff.failures == 1 else logging.DEBUG
                text = "lease not read or acquired; retrying reason=%s"
                log.log(level, text, error, exc_info=_unexpected(error))
            self._work.call_soon_threadsafe(self.known.set)
            await asyncio.sleep(pause)
        log.info("leading identity=%s lease=%s/%s", self.identity, self._namespace, self._name)
        self._work.call_soon_threadsafe(self.known.set)
        self._work.call_soon_threadsafe(self._leading.set)

    async def _try_to_acquire(self) -> bool:
        lease = await self._read()
        if lease is None and self._was_held_lately():
            return False
        if lease is not None and not self._is_free(lease):
            if (holder := _spec(lease)["holderIdentity"]) != self._seen_holder:
                self._seen_holder = holder
                log.info("standing by lease=%s/%s holder=%s", self._namespace, self._name, holder)
            return False
        # No other replica writes from here on: the lease was free, and the claim fails if another one has taken it
        # since.
        self._since = time.monotonic()
        self.handed_over = self._handed_over(lease) if lease is not None else {}
        try:
            await self._claim(lease)
        except (Conflict, AlreadyExists):
            return False
        return True

    def _is_free(self, lease: Mapping[str, Any]) -> bool:
        """Whether the Lease has no holder, or one that did not renew it for its duration while this process watched."""
        spec, now = _spec(lease), time.monotonic()
        revision = str(lease["metadata"]["resourceVersion"])
        if revision != self._seen_revision:
            self._seen_revision, self._seen_at = revision, now
        duration = max(float(spec.get("leaseDurationSeconds") or 0), self._timing.lease_duration_seconds)
        holder = spec.get("holderIdentity") or ""
        return holder in ("", self.identity) or now - self._seen_at > duration

    def _handed_over(self, lease: Mapping[str, Any]) -> Mapping[str, int]:
        """What the last holder has seen, if it handed the Lease back while this process stood by.

        An older operator leaves the annotation of a holder before it in the Lease.
        """
        try:
            found = msgspec.json.decode(_annotations(lease).get(ANNOTATION_REVISIONS, ""), type=_HandOver)
        except msgspec.DecodeError:  # there is none, or somebody else has written it
            return {}
        is_last = not _spec(lease).get("holderIdentity") and found.holder == self._seen_holder
        return found.revisions if is_last else {}

    def _was_held_lately(self) -> bool:
        """Whether somebody has deleted a Lease that another replica just held, which may still write and create it."""
        lately = time.monotonic() - self._seen_at <= self._timing.lease_duration_seconds
        return lately and self._seen_holder not in ("", self.identity)

    async def _keep(self) -> None:
        wait = self._timing.renew_seconds
        while True:
            await asyncio.sleep(min(wait, max(_LEAST_SECONDS, self.remaining())))
            if self._is_stuck():  # not handed back: its writes under way are unknown
                silent = time.monotonic() - self._heartbeat_at
                log.error("lease given up: the work has stood still for %.0f s identity=%s", silent, self.identity)
                return
            try:
                async with asyncio.timeout(max(0.0, self.remaining())):
                    await self._renew()
                wait = self._timing.renew_seconds
            except _HeldByOtherError:
                log.error("lease lost: another holds it identity=%s", self.identity)  # noqa: TRY400
                return
            except Exception as error:
                reason = "no answer in time" if isinstance(error, TimeoutError) else error
                text = "lease not renewed remaining=%.1fs reason=%s"
                log.warning(text, self.remaining(), reason, exc_info=_unexpected(error))
                wait = self._timing.retry_period_seconds
            if not self.is_leader:
                log.error("lease lost: not renewed in time identity=%s", self.identity)
                return

    def _is_stuck(self) -> bool:
        return time.monotonic() - self._heartbeat_at > self._timing.stuck_seconds

    async def _renew(self) -> None:
        try:
            await self._claim(self._lease)
        except (Conflict, NotFound, AlreadyExists):
            # An answer of ours was lost, somebody annotated or deleted the Lease, or somebody took it.
            lease = await self._read()
            if lease is not None and _spec(lease).get("holderIdentity") != self.identity:
                raise _HeldByOtherError from None
            await self._claim(lease)

    async def _claim(self, lease: Mapping[str, Any] | None) -> None:
        """Write the Lease as ours. Its time counts from before the request: when the API server wrote it is unknown."""
        begun = _since_boot()
        now = micro_time(self._session.clock.time())
        old = _spec(lease) if lease is not None else {}
        held = old.get("holderIdentity") == self.identity
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._timing.lease_duration_seconds),
            "acquireTime": (held and old.get("acquireTime")) or now,  # the field is optional
            "renewTime": now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if held or lease is None else 1),
        }
        if lease is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            self._lease = await self._session.post(self._collection, body)
        else:
            self._lease = await self._put(lease, spec)
        self.deadline = begun + self._timing.renew_deadline_seconds

    async def _put(
        self, lease: Mapping[str, Any], changes: Mapping[str, Any], noted: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Write the Lease with these changes to its spec. Without `noted`, it carries no revisions any more."""
        others = {key: value for key, value in _annotations(lease).items() if key != ANNOTATION_REVISIONS}
        meta = {**lease["metadata"], "annotations": {**others, **(noted or {})}}
        body = {**lease, "metadata": meta, "spec": {**_spec(lease), **changes}}
        return await self._session.put(f"{self._collection}/{self._name}", body)

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._session.get(f"{self._collection}/{self._name}", timeout=_READ_SECONDS)
        except NotFound:
            return None


Election = Callable[[LeaderElector], Coroutine[Any, Any, None]]
"""Runs an elector over a session that its loop shares with no other. Cancelling this cancels the elector."""


def in_own_thread(connect: Callable[[], Session]) -> Election:
    """An election in a thread with an event loop of its own, in which `connect` makes the session."""

    async def run(elector: LeaderElector) -> None:
        async with connect() as session:
            await elector.run(session)

    return lambda elector: run_in_own_loop(lambda: run(elector))


def _since_boot() -> float:
    """Seconds since boot, including suspension of the machine if the system counts it (Linux does)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def micro_time(epoch: float) -> str:
    """Epoch seconds as the API's MicroTime: RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _unexpected(error: Exception) -> Exception | None:
    """The error if it is the operator's own: the log then has its traceback."""
    return None if isinstance(error, ClusterError | TimeoutError) else error


def _annotations(lease: Mapping[str, Any]) -> Mapping[str, str]:
    annotations: Mapping[str, str] = lease["metadata"].get("annotations") or {}
    return annotations


def _spec(lease: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = lease.get("spec") or {}
    return spec

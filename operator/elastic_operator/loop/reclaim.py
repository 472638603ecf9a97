"""Has GPUs change hands in good order, or not at all: the mode, the brakes, and nominations.

A pending pod of others is nominated for its node before any pod goes for it, so that no other pod gets the room (41).
Then the losing job shrinks as for any other reason (`reconcile`). The mode, the pause and the brakes count for jobs and
pending pods alike (43, 138).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from itertools import takewhile
from math import inf

from elastic_operator.cluster import apply, objects
from elastic_operator.cluster.errors import ClusterError, Conflict, NotFound, Unreachable
from elastic_operator.cluster.events import EventRecorder, Subject
from elastic_operator.cluster.reservation import Reservation, is_renewable, reservation_of, write
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocation.allocate import Allocation
from elastic_operator.plan.allocation.brakes import taker_of
from elastic_operator.plan.facts.decisions import Event, Nomination, Stopped
from elastic_operator.plan.facts.snapshot import Brake, Brakes, Taker
from elastic_operator.plan.facts.text import listed, pods
from elastic_operator.plan.facts.times import lasts
from elastic_operator.plan.facts.useless_tries import MOST_IN_VAIN
from elastic_operator.settings import ReclaimMode, ReclaimSettings

log = logging.getLogger(__name__)

MINUTE = 60.0
MOST_BARRED = 10_000
RENEW_SECONDS = 0.05
"""A nomination that kube-scheduler took away is written again after this time (45)."""
RETRY_SECONDS = 30.0
"""A pod that could not be nominated is left alone for this long."""
CHANGED_SECONDS = 0.5
"""A pod that has changed meanwhile is left alone for this long, until the change is seen."""


class Breaker:
    """Remembers for a minute which pods were to go, and for whom (138)."""

    def __init__(self) -> None:
        self._gone: dict[str, tuple[float, Taker]] = {}
        """In the order in which they went."""

    def count(self, going: Mapping[str, Taker]) -> int:
        """Count these pods (uids) as going now; returns how many of them were not counted before."""
        self._forget_old()
        now, before = time.monotonic(), len(self._gone)
        for pod, taker in going.items():
            self._gone.pop(pod, None)
            self._gone[pod] = now, taker
        return len(self._gone) - before

    def gone(self) -> Mapping[str, Taker]:
        """The pods that went within the last minute, each with its taker."""
        self._forget_old()
        return {pod: taker for pod, (_, taker) in self._gone.items()}

    def next_relief(self) -> float:
        """Seconds until another pod may go; infinity if none has gone."""
        first = next(iter(self._gone.values()), None)
        return max(0.0, first[0] + MINUTE - time.monotonic()) if first else inf

    def _forget_old(self) -> None:
        end = time.monotonic() - MINUTE
        for pod in [*takewhile(lambda pod: self._gone[pod][0] <= end, self._gone)]:
            del self._gone[pod]


class Reclaimer:
    """Carries out decisions to reclaim GPUs, or holds them back. `changed` has everything decided again.

    `grace_ceiling` gives the most seconds that a leaving pod of a namespace gets.
    """

    def __init__(
        self,
        session: Session,
        pods: Store[objects.Pod],
        settings: ReclaimSettings,
        *,
        events: EventRecorder,
        metrics: Metrics,
        now: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._session, self._pods, self._settings = session, pods, settings
        self._events, self._metrics, self._now, self._changed = events, metrics, now, changed
        self._breaker = Breaker()
        self._looked_at: Allocation | None = None
        self._braked: frozenset[tuple[str, bool]] = frozenset()
        self._waiting: dict[Taker, tuple[float, int]] = {}
        """Takers that could pass the limit for all and wait for it: since when (monotonic), and for how many pods."""
        self._planned: dict[str, list[Nomination]] = {}
        self._barred: dict[str, tuple[float, str]] = {}
        self._writing: dict[str, asyncio.Task[bool]] = {}
        self._nominating: dict[str, str] = {}
        """The node for which each pod (uid) is being nominated now."""
        self._making_way = frozenset[str]()
        self._told: frozenset[str] = frozenset()
        self.grace_ceiling: Callable[[str], int] = lambda _namespace: settings.max_grace_period_seconds

    # -- whether -------------------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> Stopped | None:
        """Why nothing is reclaimed now; None if it is."""
        if self._settings.paused:
            return Stopped("Paused", "Nobody gives back GPUs: reclaim.paused is set in the operator's settings.")
        if self._settings.mode is not ReclaimMode.ON:
            text = f"Nobody gives back GPUs: reclaim.mode is {self._settings.mode} in the operator's settings."
            return Stopped(str(self._settings.mode), text)
        return None

    @property
    def only_told(self) -> bool:
        """Whether reclaim is only reported: DryRun."""
        return self._settings.mode is ReclaimMode.DRY_RUN and not self._settings.paused

    def brakes(self, gpus: int) -> Brakes:
        """The limits in a cluster with that many GPUs."""
        first, kept = self._longest_waiting()
        limits = self._settings.most_evictions(gpus)
        return Brakes(*limits, gone=self._breaker.gone(), firm=self._firm, first=first, kept=kept)

    def _longest_waiting(self) -> tuple[Taker | None, int]:
        """The taker whose turn it is, after more than a minute, to use the limit for all, and for how many pods."""
        first = min(self._waiting, key=lambda taker: self._waiting[taker][0], default=None)
        if first is None or time.monotonic() < self._waiting[first][0] + MINUTE:
            return None, 0
        return first, self._waiting[first][1]

    @cached_property
    def _firm(self) -> frozenset[Brake]:
        limits = (Brake.FOR_ONE, self._settings.max_evictions_per_decision)
        limits_in_all = (Brake.IN_ALL, self._settings.max_evictions_per_minute)
        return frozenset(brake for brake, limit in (limits, limits_in_all) if limit is not None)

    def relief(self, allocation: Allocation) -> float:
        """Seconds until entries that a brake kept from taking may get more; infinity if there are none, or if no pod
        has gone.
        """
        if not allocation.braked:
            return inf
        turns = (since + MINUTE - time.monotonic() for since, _ in self._waiting.values())
        return min(self._breaker.next_relief(), *(turn for turn in turns if turn > 0), inf)

    def goes(self, pods: Mapping[str, Taker]) -> None:
        """Count these pods (uids) as going from now on."""
        self._metrics.evictions.inc(self._breaker.count(pods))

    def tell_braked(self, allocation: Allocation, job_of: Callable[[str], Subject | None]) -> None:
        """Report each entry that a brake keeps from taking, once until it is not kept any more."""
        if allocation is self._looked_at:
            return
        self._looked_at, before = allocation, self._braked
        self._note_waiting(allocation)
        self._braked = frozenset((claim.job.uid, one.waits_for_a_person) for claim, one in allocation.braked)
        self._metrics.breaker_open.set(len(allocation.braked))
        self._metrics.too_large.set(sum(one.waits_for_a_person for _, one in allocation.braked))
        for claim, one in allocation.braked:
            job = claim.job
            if (job.uid, one.waits_for_a_person) in before:
                continue
            log.warning("pods=%s/%s wait, as too much would be reclaimed: %s", job.namespace, job.name, one.text)
            pod = self._pods.get(job.uid) if claim.request else None
            subject = _subject(pod) if pod is not None else job_of(job.uid)
            if subject is not None and one.waits_for_a_person:
                self._events.record_for(subject, Event("ReclaimTooLarge", one.text, "Warning"))

    def _note_waiting(self, allocation: Allocation) -> None:
        """A taker whose turn it is keeps the turn until its pods have gone."""
        now, before, taking = time.monotonic(), self._waiting, allocation.taken.values()
        waiting = ((claim, one) for claim, one in allocation.braked if one.brake is Brake.IN_ALL)
        self._waiting = {
            taker: (before.get(taker, (now, 0))[0], one.wanted)
            for claim, one in waiting
            if not one.waits_for_a_person and (taker := taker_of(claim))
        }
        served = before.keys() - self._waiting.keys()
        self._waiting |= {taker: before[taker] for taker in (served.intersection(taking) if served else ())}

    def tell_no_room(self, gangs: Iterable[frozenset[str]]) -> None:
        """Report on one pod of each of these gangs that there is no room for all of it; `gangs` are their
        pods (uids).
        """
        for uids in gangs:
            pod = self._pods.get(min(uids))
            if pod is None:
                continue
            text = (
                f"There is no room for all {pods(len(uids))} of its gang that wait, as far as its team is entitled to"
                " any. Nobody makes way for a part of a gang."
            )
            log.info("pod=%s/%s event=NoRoomForGang message=%r", *_name(pod), text)
            self._events.record_for(_subject(pod), Event("NoRoomForGang", text))

    def tell(self, allocation: Allocation, job_of: Callable[[str], Subject | None]) -> None:
        """Report what would be taken, once for each pod that would go."""
        evictions = allocation.evictions
        told, self._told = self._told, frozenset(pod for eviction in evictions for pod in eviction.pods)
        for eviction in evictions:
            job, new = job_of(eviction.job_uid), [pod for pod in eviction.pods if pod not in told]
            if job is not None and new:
                text = f"{pods(len(new))} would go for {', '.join(eviction.takers)}. reclaim.mode is DryRun."
                log.info("job=%s/%s event=WouldReclaim message=%r", job.namespace, job.name, text)
                self._events.record_for(job, Event("WouldReclaim", text))
                self._metrics.would_evict.inc(len(new))

    # -- reservations --------------------------------------------------------------------------------------------------

    def barred(self, uid: str) -> tuple[float, str] | None:
        """Until when (epoch seconds), and why, nothing is tried for that pending pod."""
        known = self._barred.get(uid)
        if known is not None and not lasts(known[0], RETRY_SECONDS, self._now()):
            del self._barred[uid]
            return None
        return known

    def plan(self, allocation: Allocation) -> None:
        """Note a pass's decision: a job lets pods go for a pending pod only after that is nominated (41)."""
        self._planned = {}
        self._making_way = frozenset(reclaim.node for reclaim in allocation.reclaims if reclaim.losers)
        if len(self._barred) > MOST_BARRED:
            self._barred.clear()
        for reclaim in allocation.reclaims:
            for loser in reclaim.losers:
                self._planned.setdefault(loser, []).append(reclaim)
            if reclaim.reserved and reclaim.is_new and not reclaim.losers:
                self._nomination(reclaim)  # its node has been lost to somebody, and there is room on another

    def makes_way(self, node: str) -> bool:
        """Whether pods on that node are about to be deleted for a pending pod."""
        return node in self._making_way

    def before(self, job_uid: str) -> Callable[[], Awaitable[bool]] | None:
        """What must be done before the job lets pods go; its result says whether they may go then."""
        reclaims = [reclaim for reclaim in self._planned.get(job_uid, ()) if reclaim.is_new]
        if not reclaims:
            return None
        tasks = [self._nomination(reclaim) for reclaim in reclaims]

        async def all_nominated() -> bool:
            return all(await asyncio.gather(*(asyncio.shield(task) for task in tasks)))

        return all_nominated

    def withdraw(self, expired: Iterable[objects.Pod]) -> None:
        """Take back reservations that ran out, unless another node is about to be reserved in their place."""
        planned = {reclaim.uid for reclaims in self._planned.values() for reclaim in reclaims}
        for pod in expired:
            if pod.metadata.uid not in self._writing and pod.metadata.uid not in planned:
                self._start(pod.metadata.uid, self._withdraw(pod))

    def renew(self, renewable: Iterable[tuple[objects.Pod, Reservation]]) -> None:
        """Nominate pods again whose reservation holds without its nomination; see `is_renewable`."""
        for pod, reserved in renewable:
            if pod.metadata.uid not in self._writing:
                self._start(pod.metadata.uid, self._renew(pod, reserved))

    async def stop(self) -> None:
        """Cancel what is under way."""
        under_way = list(self._writing.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _nomination(self, reclaim: Nomination) -> asyncio.Future[bool]:
        """The nomination of the pod, one for all jobs that make room for it.

        It comes to nothing while the pod is nominated for another node, that of an earlier pass: on this one no pod may
        go for it (145). When that ends, everything is decided again.
        """
        task = self._writing.get(reclaim.uid)
        if task is None:
            self._nominating[reclaim.uid] = reclaim.node
            return self._start(reclaim.uid, self._nominate(reclaim))
        return task if self._nominating.get(reclaim.uid) == reclaim.node else asyncio.ensure_future(_in_vain(task))

    def _start(self, uid: str, work: Awaitable[bool]) -> asyncio.Task[bool]:
        task = asyncio.ensure_future(work)
        self._writing[uid] = task
        task.add_done_callback(lambda _: self._ended(uid))
        return task

    def _ended(self, uid: str) -> None:
        self._writing.pop(uid, None)
        self._nominating.pop(uid, None)
        self._changed()

    async def _nominate(self, reclaim: Nomination) -> bool:
        pod = self._pods.get(reclaim.uid)
        if pod is None:
            return False
        now, before = self._now(), reservation_of(pod)
        if before.has_run_out(now):
            before = before.ran_out(now)
            self._tell_expired(pod)
        until = now + self._grace_seconds(reclaim.victims) + self._settings.reservation_seconds
        if not await self._write(pod, Reservation(reclaim.node, now, until, before.avoid)):
            return False
        self._metrics.nominations.inc()
        text = f"Node {reclaim.node} is reserved for it."
        if reclaim.losers:
            text += f" {pods(len(reclaim.victims))} of {listed(sorted(reclaim.losers.values()))} will be gone first."
        log.info("pod=%s/%s nominated node=%s victims=%d", *_name(pod), reclaim.node, len(reclaim.victims))
        self._events.record_for(_subject(pod), Event("QuotaReclaimed", text))
        return True

    def _grace_seconds(self, going: Iterable[str]) -> int:
        """The longest time that these pods (uids) may take to go, whatever they were made with."""
        pods = [pod for uid in going if (pod := self._pods.get(uid)) is not None]
        graces = (
            min(pod.spec.termination_grace_period_seconds, self.grace_ceiling(pod.metadata.namespace)) for pod in pods
        )
        return max(graces, default=0)

    async def _renew(self, before: objects.Pod, reserved: Reservation) -> bool:
        """Nominate the pod again, after a pause. In a gang the node may be another one than before (167).

        Whenever a nomination is taken away, kube-scheduler tries all waiting pods, and each of them may lose its own.
        """
        await asyncio.sleep(RENEW_SECONDS)
        pod = self._pods.get(before.metadata.uid)
        if pod is None or reservation_of(pod).node != reservation_of(before).node:
            return False
        if not is_renewable(pod, reserved, self._now()):
            return False
        try:
            renewed = await self._put(pod, reserved)
        except ClusterError as error:
            log.info("pod=%s/%s not nominated again: %s", *_name(pod), error)
            return False
        if renewed:
            log.info("pod=%s/%s nominated again node=%s", *_name(pod), reserved.node)
        return renewed

    async def _withdraw(self, pod: objects.Pod) -> bool:
        reservation = reservation_of(pod)
        left = reservation.ran_out(now := self._now())
        if not await self._write(pod, left):
            return False
        self._tell_expired(pod, rest=left.rests_until - now if left.rests(now) else 0.0)
        return True

    def _tell_expired(self, pod: objects.Pod, *, rest: float = 0.0) -> None:
        node = reservation_of(pod).node
        self._metrics.reservations_expired.inc()
        text = f"It did not get its place on {node} in time."
        if rest:
            text += (
                f" At least {MOST_IN_VAIN} nodes were kept for it in vain: kube-scheduler has a reason of its own, see"
                f" PodScheduled. Nobody makes way for it for {rest / 3600:.0f} h."
            )
        else:
            text += " Another node is tried, this one later."
        log.warning("pod=%s/%s its reservation ran out node=%s", *_name(pod), node)
        self._events.record_for(_subject(pod), Event("ReservationExpired", text, "Warning"))

    async def _write(self, pod: objects.Pod, reservation: Reservation) -> bool:
        """Write the reservation; returns whether that worked. If it did not, the pod is left alone for a while."""
        uid = pod.metadata.uid
        try:
            try:
                return await self._put(pod, reservation)
            except Conflict:
                return await self._put_anew(pod, reservation)
        except (Conflict, Unreachable):  # it has changed, or may have: the watch tells
            self._barred[uid] = (self._now() + CHANGED_SECONDS, "it has just changed")
        except ClusterError as error:
            self._barred[uid] = (self._now() + RETRY_SECONDS, f"it cannot be nominated: {error}")
            log.warning("pod=%s/%s cannot be nominated: %s", *_name(pod), error)
        return False

    async def _put_anew(self, before: objects.Pod, reservation: Reservation) -> bool:
        """The same for a pod that has changed, as it is now; False if it is gone or has a node.

        kube-scheduler writes into a pod at each try. While a pod of a gang is left alone, nothing is planned for the
        rest of the gang, and other jobs grow into the room that it was to get (158).

        Raises ClusterError; Conflict if somebody else has nominated it.
        """
        meta = before.metadata
        try:
            pod = await apply.get_pod(self._session, meta.namespace, meta.name)
        except NotFound:
            self._pods.observe_deleted(meta.uid)
            return False
        self._pods.observe(pod)
        if pod.metadata.uid != meta.uid or pod.spec.node_name:
            return False
        if pod.status.nominated_node_name not in ("", before.status.nominated_node_name, reservation.node):
            raise Conflict(f"pod {pod.metadata.name} has another nomination", status=409, reason="Conflict")
        return await self._put(pod, reservation)

    async def _put(self, pod: objects.Pod, reservation: Reservation) -> bool:
        """Write the reservation and put the answer into the store; False if the pod is gone. Raises ClusterError."""
        try:
            written = await write(self._session, pod, reservation, self._now())
        except NotFound:
            self._pods.observe_deleted(pod.metadata.uid)
            return False
        self._pods.observe(written)
        return True


async def _in_vain(other: asyncio.Future[bool]) -> bool:
    """False, at the end of that one."""
    await asyncio.wait([other])
    return False


def _name(pod: objects.Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _subject(pod: objects.Pod) -> Subject:
    return Subject("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)

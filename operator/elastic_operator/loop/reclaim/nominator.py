"""Nominates foreign pods for their nodes, and withdraws nominations.

A foreign pod is nominated for its node before any pod is evicted for it, so that no other pod gets the room (41). Then
the victim job shrinks as for any other reason (`reconcile`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastic_operator.cluster import objects, pod_requests
from elastic_operator.cluster.errors import ClusterError, Conflict, NotFound, Outdated, Unreachable
from elastic_operator.cluster.events import EventRecorder, pod_subject
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.waiting import cancel_and_wait
from elastic_operator.cluster.write_queue import Urgency
from elastic_operator.loop.writes.plan_executor import Gate
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.decisions import Event, EventReason, Nomination
from elastic_operator.plan.facts.text import listed, pods
from elastic_operator.plan.facts.waits import FUTILE_TRIES
from elastic_operator.read.foreign.foreign_pods import WaitingPod
from elastic_operator.read.foreign.nomination_backoffs import NOMINATION_RETRY_SECONDS, NominationBackoffs
from elastic_operator.read.foreign.reservation import Reservation, condition_of, is_renewable, reservation_of

log = logging.getLogger(__name__)

RENEW_SECONDS = 0.05
"""A nomination that kube-scheduler removed is written again after this time (45)."""
CHANGED_SECONDS = 0.5
"""A pod that has changed meanwhile is not tried again for this long, so that the watch can bring the change."""


class _Write(NamedTuple):
    """A write for one pod. `node` is the node that the write nominates the pod for; "" for none."""

    task: asyncio.Task[bool]
    node: str


@dataclass(eq=False, repr=False)
class Nominator:
    """Writes the nominations that the passes decide."""

    session: Session
    pods: Store[objects.Pod]
    backoffs: NominationBackoffs
    keeps_seconds: float
    """How long a node is kept for a pod beyond the grace of the evicted pods."""
    grace_ceiling: Callable[[str], int]
    """The longest grace of a leaving pod of a namespace (seconds)."""
    events: EventRecorder
    metrics: Metrics
    now: Callable[[], float]
    """Epoch seconds on the API server's clock."""
    on_change: Callable[[], None]
    """Called when everything must be decided again."""

    def __post_init__(self) -> None:
        self._by_victim_job: dict[str, list[Nomination]] = {}
        """The nominations of the last pass for which a job loses pods, by the job's uid."""
        self._by_gang: dict[str, list[Nomination]] = {}
        """The new nominations among these by the gang of the pod, for gangs whose nominations have not begun in this
        pass.
        """
        self._expired: dict[str, Reservation] = {}
        """The reservations that had run out at the last pass, by pod (uid), each with its present node (167)."""
        self._writing: dict[str, _Write] = {}
        """The write under way for each pod (uid)."""

    def take(
        self,
        nominations: Sequence[Nomination],
        *,
        expired: Sequence[WaitingPod] = (),
        renewable: Sequence[WaitingPod] = (),
    ) -> None:
        """Take the nominations of a pass. Withdraw the `expired` reservations, and write those again whose nomination
        was removed (`renewable`), unless another node is about to be reserved for the pod.

        A job releases pods for a foreign pod only after the nomination (41). So a nomination with victims begins with
        the first plan of a victim job of the pod, or of another pod of its gang (`begin_for`). A nomination without
        victims begins here, if the pod had another node. Other nominations without victims are not written:
        kube-scheduler finds the free room itself.
        """
        self._by_victim_job, self._by_gang = {}, {}
        self._expired = {waiting.pod.metadata.uid: waiting.reservation for waiting in expired}
        for nomination in nominations:
            for victim_job in nomination.evicts_from:
                self._by_victim_job.setdefault(victim_job, []).append(nomination)
            if nomination.gang and nomination.evicts_from and nomination.is_new:
                self._by_gang.setdefault(nomination.gang, []).append(nomination)
            if nomination.reserved and nomination.is_new and not nomination.evicts_from:
                self._begin(nomination)  # another pod has taken its node, and there is room on another node
        planned = {nomination.uid for nominations in self._by_victim_job.values() for nomination in nominations}
        for waiting in expired:
            if self._may_write(uid := waiting.pod.metadata.uid) and uid not in planned:
                self._start(uid, self._withdraw(waiting.pod, waiting.reservation))
        moving = {nomination.uid for nomination in nominations if nomination.is_new}
        for waiting in renewable:
            if self._may_write(uid := waiting.pod.metadata.uid) and uid not in moving:
                self._start(uid, self._renew(waiting.pod, waiting.reservation))

    def _may_write(self, uid: str) -> bool:
        """Whether no write for the pod is under way, and none has failed a short time ago."""
        return uid not in self._writing and self.backoffs.backoff(uid) is None

    def begin_for(self, job_uid: str) -> Gate | None:
        """Begin to nominate the pods for which the job releases pods; None if there are none to nominate.

        The nominations of all other pods of their gangs begin, too. As soon as a node is free, kube-scheduler may bind
        any pod of the gang there. If that pod were not nominated yet, the pod that is nominated for the node would be
        left without a node, and another node would be cleared for it (214). The job does not wait for the nominations
        of these other pods.
        """
        nominations = [nomination for nomination in self._by_victim_job.get(job_uid, ()) if nomination.is_new]
        if not nominations:
            return None
        writes = [self._begin(nomination) for nomination in nominations]
        for gang in dict.fromkeys(nomination.gang for nomination in nominations):
            for other in self._by_gang.pop(gang, ()):
                self._begin(other)
        same_nodes = all(write.node == nomination.node for write, nomination in zip(writes, nominations, strict=True))

        async def all_nominated() -> bool:
            """False while a pod is being nominated for another node, by the decision of an earlier pass: no pod on this
            node may be evicted for it (145). After the nomination under way, everything is decided again.
            """
            return all(await asyncio.gather(*(asyncio.shield(write.task) for write in writes))) and same_nodes

        return all_nominated

    async def stop(self) -> None:
        """Cancel the nominations under way."""
        await cancel_and_wait(write.task for write in self._writing.values())

    def _begin(self, nomination: Nomination) -> _Write:
        """The write of the nomination, one for all jobs that make room for the pod; or another write for the pod, if
        that is under way.
        """
        uid, node = nomination.uid, nomination.node
        return self._writing.get(uid) or self._start(uid, self._nominate(nomination), node)

    def _start(self, uid: str, work: Awaitable[bool], node: str = "") -> _Write:
        write = self._writing[uid] = _Write(asyncio.create_task(self._guarded(uid, work)), node)
        write.task.add_done_callback(lambda _: self._ended(uid))
        return write

    async def _guarded(self, uid: str, work: Awaitable[bool]) -> bool:
        """The result of the work. After an error of the operator's own, only this pod backs off, and no job (88)."""
        try:
            return await work
        except Exception as error:
            self.metrics.count_error("pod")
            self.backoffs.back_off(uid, NOMINATION_RETRY_SECONDS, f"it cannot be nominated: {type(error).__name__}")
            log.exception("cannot nominate a pod uid=%s", uid)
            return False

    def _ended(self, uid: str) -> None:
        self._writing.pop(uid, None)
        self.on_change()

    async def _nominate(self, nomination: Nomination) -> bool:
        pod = self.pods.get(nomination.uid)
        if pod is None:
            return False
        now, expired = self.now(), self._expired.get(nomination.uid)
        before = expired.ran_out(now) if expired else reservation_of(pod)
        until = now + self._grace_seconds(nomination.victims) + self.keeps_seconds
        wanted = Reservation(nomination.node, now, until, before.avoid, victims=nomination.victims)
        if not await self._write(pod, wanted, Urgency.RESERVE):
            return False
        if expired:
            self._tell_expired(pod, expired)
        self.metrics.nominations.inc()
        text = f"Node {nomination.node} is reserved for the pod."
        if nomination.evicts_from:
            victim_jobs = listed(sorted(nomination.evicts_from.values()))
            text += f" {pods(len(nomination.victims))} of {victim_jobs} will be evicted first."
        log.info("nominated a pod pod=%s/%s node=%s victims=%d", *_name(pod), nomination.node, len(nomination.victims))
        self.events.record(pod_subject(pod), Event(EventReason.QUOTA_RECLAIMED, text))
        return True

    def _grace_seconds(self, victims: Iterable[str]) -> int:
        """The longest grace of these pods (uids), each capped at the ceiling of its namespace."""
        leaving = [pod for uid in victims if (pod := self.pods.get(uid)) is not None]
        graces = ((pod.spec.termination_grace_period_seconds, pod.metadata.namespace) for pod in leaving)
        return max((min(grace, self.grace_ceiling(namespace)) for grace, namespace in graces), default=0)

    async def _renew(self, before: objects.Pod, reservation: Reservation) -> bool:
        """Nominate the pod again, after a pause. In a gang the node may have changed (167).

        Whenever kube-scheduler removes a nomination, it tries all waiting pods, and each of these may lose its
        nomination.
        """
        await asyncio.sleep(RENEW_SECONDS)
        pod = self.pods.get(before.metadata.uid)
        if pod is None or reservation_of(pod).node != reservation_of(before).node:
            return False
        if not is_renewable(pod, reservation, self.now()):
            return False
        renewed = await self._write(pod, reservation, Urgency.BEFORE_DELETE)
        if renewed:
            log.info("renewed the nomination of a pod pod=%s/%s node=%s", *_name(pod), reservation.node)
        return renewed

    async def _withdraw(self, pod: objects.Pod, expired: Reservation) -> bool:
        instead = expired.ran_out(now := self.now())
        if not await self._write(pod, instead, Urgency.CHANGE):
            return False
        self._tell_expired(pod, expired, backoff=instead.backoff_until - now if instead.is_in_backoff(now) else 0.0)
        return True

    def _tell_expired(self, pod: objects.Pod, expired: Reservation, *, backoff: float = 0.0) -> None:
        """Report the end of the reservation, once."""
        self._expired.pop(pod.metadata.uid, None)
        node = expired.node
        self.metrics.reservations_expired.inc()
        text = f"kube-scheduler did not bind the pod to {node} before the reservation ended."
        if backoff:
            text += (
                f" This has happened on at least {FUTILE_TRIES} nodes; the pod's condition PodScheduled has"
                " kube-scheduler's reason."
                f" The operator evicts no pods for this pod for {backoff / 3600:.0f} h."
            )
        else:
            text += " The operator tries another node, and avoids this one for a while."
        log.warning("the reservation of a node expired pod=%s/%s node=%s", *_name(pod), node)
        self.events.record(pod_subject(pod), Event(EventReason.RESERVATION_EXPIRED, text, "Warning"))

    async def _write(self, pod: objects.Pod, reservation: Reservation, urgency: Urgency) -> bool:
        """Write the reservation; returns whether it was written. If not, the pod is not tried again for a while."""
        uid = pod.metadata.uid
        try:
            try:
                return await self._put(pod, reservation, urgency)
            except Conflict:
                return await self._put_again(pod, reservation, urgency)
        except (Conflict, Outdated, Unreachable):  # the pod has changed, or may have: the watch brings the news
            self.backoffs.back_off(uid, CHANGED_SECONDS, "it has just changed")
        except ClusterError as error:
            self.backoffs.back_off(uid, NOMINATION_RETRY_SECONDS, f"it cannot be nominated: {error}")
            log.warning("cannot nominate a pod pod=%s/%s reason=%s", *_name(pod), error)
        return False

    async def _put_again(self, before: objects.Pod, reservation: Reservation, urgency: Urgency) -> bool:
        """Write the reservation into the pod as it is now, after a change; False if the pod is deleted or has a node.

        kube-scheduler writes into a pod at each try. While a pod of a gang backs off, nothing is planned for the rest
        of the gang, and other jobs grow into the gang's room (158).

        Raises ClusterError; Outdated if another program has nominated the pod.
        """
        pod = await pod_requests.pod_now(self.session, self.pods, before.metadata)
        if pod is None or pod.spec.node_name:
            return False
        if pod.status.nominated_node_name not in ("", before.status.nominated_node_name, reservation.node):
            raise Outdated(f"pod {pod.metadata.name} has another nomination")
        return await self._put(pod, reservation, urgency)

    async def _put(self, pod: objects.Pod, reservation: Reservation, urgency: Urgency) -> bool:
        """Write the reservation and put the answer into the store; False if the pod is deleted. Raises ClusterError."""
        try:
            condition = condition_of(reservation, self.now())
            written = await pod_requests.nominate_pod(self.session, pod, reservation.node, condition, urgency=urgency)
        except NotFound:
            self.pods.observe_deleted(pod.metadata.uid)
            return False
        self.pods.observe(written)
        return True


def _name(pod: objects.Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name

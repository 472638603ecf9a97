"""The planner's world, read from the stores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import Protocol

from elastic_operator.cluster import objects
from elastic_operator.loop.write_backoff import Troubles
from elastic_operator.plan.facts.job import NOBODY_ASKS, Group, Job, OwnPod
from elastic_operator.plan.facts.launcher_report import Report
from elastic_operator.plan.facts.snapshot import Member, Node, PendingPod, Snapshot
from elastic_operator.plan.job.demand import JobShape
from elastic_operator.plan.policies.resolve import Resolved
from elastic_operator.read.bulkhead import Fault
from elastic_operator.read.jobs import Facts, Reader, drop_absent
from elastic_operator.read.nodes import Unready
from elastic_operator.settings import Settings

log = logging.getLogger(__name__)

FEW_JOBS = 16
"""So many jobs that are new or changed are read in one go: a large template takes 10 ms."""


class Logs(Protocol):
    """Pods as they are once the logs of those that failed were read."""

    def as_read(self, uid: str, namespace: str, pods: tuple[OwnPod, ...]) -> tuple[OwnPod, ...]:
        """The job's pods; a failed one is shown as it was before, until its log was read."""
        ...


@dataclass(slots=True)
class _Known:
    """A job as last read. `plain`: nothing but its own body, its pods and the surroundings decides how it looks."""

    facts: Facts
    job: Job
    stamp: object
    plain: bool

    def is_of(self, body: objects.CustomObject, stamp: object) -> bool:
        """Whether neither the job nor its pods have changed since."""
        return self.facts.body is body and self.stamp == stamp


class StoredWorld:
    """The stores as one moment of the cluster, after each `look`.

    `report` and `heard` say by a job's uid what its master reported, and when, `group` what its pods' logs show.
    """

    def __init__(
        self,
        reader: Reader,
        logs: Logs,
        troubles: Troubles,
        report: Callable[[str], Report | None] = lambda _: None,
        heard: Callable[[str], float | None] = lambda _: -inf,
        group: Callable[[str], Group | None] = lambda _: NOBODY_ASKS,
        passed: Callable[[Job], bool] = lambda _: True,
    ) -> None:
        self.reader, self._logs, self._troubles = reader, logs, troubles
        self._report, self._heard, self._group, self._passed = report, heard, group, passed
        self._bulkhead, self._stores, self._ledger = reader.bulkhead, reader.stores, reader.ledger
        self.now = 0.0
        self.unready: Unready = {}
        self.empty = _without_contents(reader.settings)
        self._known: dict[str, _Known] = {}
        self._bare: dict[str, tuple[objects.CustomObject, Fault | None, tuple[OwnPod, ...], Job]] = {}
        """Jobs that are set aside, or deleted and still there, and what that was read from."""
        self._surroundings: object = None
        self._era = 0
        """Grows when anything changes that all jobs are seen by."""
        self._moves: dict[str, int] = {}
        """How often a claim or volume of each job has changed."""

    @property
    def policies(self) -> Resolved:
        """What the quota policies come to."""
        return self.reader.policies

    def look(self, now: float) -> StoredWorld:
        """This moment, at `now` (epoch seconds on the API server's clock)."""
        self.reader.begin_look()
        self.glance(now)
        self._ledger.expire()
        uids = self.jobs()
        for known in (self._known, self._bare, self._moves):
            drop_absent(known, uids)
        self.reader.keep_only(uids)
        return self

    def glance(self, now: float) -> StoredWorld:
        """What jobs are seen by, beside themselves."""
        self.now, reader = now, self.reader
        reader.look_at_policies()
        self.unready = reader.nodes.unready_since(now)
        reader.outside.look(reader.nodes.openness(), reader.policies, now)
        surroundings = reader.surroundings(self.unready)
        if surroundings != self._surroundings:
            self._surroundings = surroundings
            self._era += 1
        for uid in reader.moved():
            self._moves[uid] = self._moves.get(uid, 0) + 1
        return self

    def forget(self) -> None:
        """Read everything again."""
        self._known.clear()
        self._era += 1

    def forget_some(self, uids: Iterable[str]) -> None:
        """Read these jobs again."""
        for uid in uids:
            self._known.pop(uid, None)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self) -> AbstractSet[str]:
        """The uids of all jobs."""
        return {body.metadata.uid: None for body in self._stores.jobs.values() if self._is_mine(body)}.keys()

    def job(self, uid: str, *, again: bool = False) -> Job:
        """The facts of that job; the same object as long as nothing of them changes."""
        body = self._stores.jobs.get(uid)
        assert body is not None, "asked of jobs that are there"
        meta = body.metadata
        fault = self._bulkhead.fault(uid, meta.generation)
        if fault is not None or meta.deletion_timestamp is not None:
            return self._bare_job(body, fault)
        self._bare.pop(uid, None)
        known, trouble = self._known.get(uid), self._troubles.message(uid)
        group, report = self._group(uid), self._report(uid)
        stamp = self._ledger.stamp(uid, meta.namespace, meta.name), report, group, self._era
        if known is not None and known.plain and not again and not trouble and known.is_of(body, stamp):
            return known.job
        own = self._ledger.own_pods(uid)
        as_they_are = self.reader.status(body).finished or self.reader.tells_by_itself(body)
        facts = self.reader.facts(
            body,
            pods=own if as_they_are else self._logs.as_read(uid, meta.namespace, own),
            trouble=trouble,
            blocked=self._troubles.blocked(uid),
            refused=self._troubles.refused(uid, meta.generation),
            unready=self.unready,
            report=report,
            heard=self._heard(uid),
            group=group,
        )
        if known is None or not facts.equal(known.facts):
            known = self._known[uid] = _Known(facts, self.reader.job(facts), stamp, plain=False)
        known.stamp = stamp
        known.plain = facts.pods is own and not trouble and known.job.status.held_until is None
        return known.job

    def _bare_job(self, body: objects.CustomObject, fault: Fault | None) -> Job:
        """A job that is set aside, or that only a finalizer keeps: nothing of it counts but its pods."""
        uid, pods = body.metadata.uid, self._ledger.own_pods(body.metadata.uid)
        self._known.pop(uid, None)
        known = self._bare.get(uid)
        if known is None or known[0] is not body or known[1] is not fault or known[2] is not pods:
            job = self.reader.bare_job(body, pods, fault)
            known = self._bare[uid] = body, fault, pods, job
        return known[3]

    def unread(self) -> Iterator[str]:
        """Jobs that were not read as they are now, if they are many. Each is there when it is named."""
        found = [body.metadata.uid for body in self._stores.jobs.values() if self._is_new(body)]
        for uid in found if len(found) > FEW_JOBS else ():
            body = self._stores.jobs.get(uid)
            if body is not None and self._is_mine(body):
                yield uid

    def _is_new(self, body: objects.CustomObject) -> bool:
        uid = body.metadata.uid
        known = self._known.get(uid)
        return uid not in self._bare and (known is None or known.facts.body is not body) and self._is_mine(body)

    def _is_mine(self, body: objects.CustomObject) -> bool:
        return self.reader.settings.watches(body.metadata.namespace)

    def stamp(self, job: Job) -> object:
        """Equal as long as the job's shape and the pods that are being created are the same."""
        return self._ledger.stamp(job.uid, job.namespace, job.name), self._era, self._moves.get(job.uid, 0)

    def shape(self, job: Job) -> JobShape:
        """What the job's pods ask of a node."""
        return self.reader.shapes(job)

    def assumed(self, uid: str) -> tuple[Member, ...]:
        """The pods of that job that are being created."""
        return tuple(one.member for one in self._ledger.assumed(uid))

    def flavor_held(self, pods: Sequence[OwnPod]) -> str | None:
        """The flavor of the GPUs that these pods hold; None if they hold none."""
        return self.reader.flavor_held(pods)

    # -- whether others may lose pods for a job ------------------------------------------------------------------------

    def may_take(self, job: Job) -> bool:
        """By what the API server answered about its pods (139)."""
        return self._passed(job)

    def is_trusted(self, job: Job) -> bool:
        """By what it made the operator raise so far."""
        return self._bulkhead.may_take(job.uid, job.generation)

    def answered(self) -> None:
        """The API server's answer about the pods of some job is another one than before."""
        self.reader.outside.answered()

    # -- all else ------------------------------------------------------------------------------------------------------

    def nodes(self, members: AbstractSet[str], leaving: Sequence[tuple[str, OwnPod]]) -> tuple[Node, ...]:
        """All nodes with what pods use of them, but for `members`."""
        return self.reader.nodes.look(members, leaving)

    def pending_pods(self) -> tuple[PendingPod, ...]:
        """The foreign pods that wait for GPUs."""
        return self.reader.requests.look(self.now)

    def set_aside(self, uid: str, error: Exception, *, in_allocation: bool = False, given: bool = False) -> bool:
        """The job made the planner raise."""
        body = self._stores.jobs.get(uid)
        if body is None:
            log.error("a job that is gone, uid=%s, raised", uid, exc_info=error)
            return False
        meta = body.metadata
        self._bulkhead.set_aside(
            "job",
            uid,
            f"{meta.namespace}/{meta.name}",
            error,
            version=meta.generation,
            in_allocation=in_allocation,
            given=given,
        )
        return True

    def set_pod_aside(self, pod: PendingPod, error: Exception) -> None:
        """The allocation raised at a foreign pod."""
        self._bulkhead.set_aside("pod", pod.uid, f"{pod.namespace}/{pod.name}", error, in_allocation=True)


def _without_contents(settings: Settings) -> Snapshot:
    """What every snapshot has from the settings."""
    return Snapshot(
        now=0.0,
        nodes=(),
        jobs=(),
        gpu_resources=settings.gpu_resources,
        flavors=settings.gpu_flavors,
        teams=settings.default_parents,
        default_team=settings.default_team,
        starvation_seconds=settings.starvation_seconds,
    )

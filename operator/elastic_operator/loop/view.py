"""One look at everything: what is known of each job, and the snapshot that is allocated from.

A look costs what changed since the last one. What nothing changed of is the same object as before, so whoever decides
from it sees by identity that there is nothing new to decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from elastic_operator.cluster import objects
from elastic_operator.loop.backoff import Troubles
from elastic_operator.plan.facts.job import NOBODY_ASKS, Group, Job, OwnPod
from elastic_operator.plan.facts.launcher_report import Report
from elastic_operator.plan.facts.snapshot import JobDemand, Snapshot
from elastic_operator.plan.job.demand import JobShape
from elastic_operator.plan.job.holding import held, stays
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.set_aside import demand_aside
from elastic_operator.pods.logs import FailureLogs
from elastic_operator.read.bulkhead import Fault
from elastic_operator.read.entry import Assumed
from elastic_operator.read.jobs import Facts, Reader, drop_absent
from elastic_operator.read.nodes import Unready
from elastic_operator.settings import Settings

log = logging.getLogger(__name__)

FEW_JOBS = 16
"""So many jobs that are new or changed are looked at in one go: a large template takes 10 ms to read."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a look saw: jobs by uid, and what to allocate from."""

    obs: Mapping[str, Observation]
    snapshot: Snapshot


@dataclass(slots=True)
class _Known:
    """One job as last looked at. Time alone changes nothing of `seen` before `until`.

    `stamp` is the ledger's. `plain`: nothing but its own body, its pods and the surroundings decides how it looks.
    """

    facts: Facts
    obs: Observation
    until: float
    stamp: object
    plain: bool

    def is_of(self, body: objects.CustomObject, stamp: object) -> bool:
        """Whether neither the job nor its pods have changed since."""
        return self.facts.body is body and self.stamp == stamp


@dataclass(slots=True)
class _Demanded:
    """What a job demands (None: nothing), and what that was made from."""

    obs: Observation
    stamp: object
    shape: JobShape | None = None
    assumed: tuple[Assumed, ...] = ()
    demand: JobDemand | None = None
    takes: bool = True


@dataclass(slots=True)
class _Aside:
    """A job that is set aside, as last seen, and the demand that was made of its last good one."""

    body: objects.CustomObject
    fault: Fault
    pods: tuple[OwnPod, ...]
    obs: Observation
    demand: JobDemand | None = None


class Observer:
    """Remembers what it saw, and from what.

    `report` and `heard` tell by a job's uid what its master said, and when, `group` what its pods' logs show.
    """

    def __init__(
        self,
        reader: Reader,
        logs: FailureLogs,
        troubles: Troubles,
        report: Callable[[str], Report | None] = lambda _: None,
        heard: Callable[[str], float | None] = lambda _: -inf,
        group: Callable[[str], Group | None] = lambda _: NOBODY_ASKS,
    ) -> None:
        self.reader, self.logs, self.troubles, self._report, self._heard = reader, logs, troubles, report, heard
        self._group = group
        self._bulkhead = reader.bulkhead
        self.may_take: Callable[[Job], bool] = lambda _: True
        """Whether others may be asked to go for a job."""
        self._asides: dict[str, _Aside] = {}
        self._going: dict[str, tuple[objects.CustomObject, Observation]] = {}
        """Jobs that are deleted and still there, as last seen."""
        self._good: dict[str, JobDemand] = {}
        """What each job demanded when it was last looked at without an error."""
        self._known: dict[str, _Known] = {}
        self._demanded: dict[str, _Demanded] = {}
        self._snapshot: Snapshot | None = None
        self._surroundings: object = None
        self._members: frozenset[str] = frozenset()
        self._policies = reader.policies
        self._empty = _without_contents(reader.settings)
        self._clock_revision = reader.clock.revision

    def forget(self) -> None:
        """Look at everything anew the next time."""
        self._known.clear()
        self._demanded.clear()
        self._snapshot = None

    def forget_some(self, uids: Iterable[str]) -> None:
        """Look at these jobs anew the next time."""
        for uid in uids:
            self._known.pop(uid, None)
            self._demanded.pop(uid, None)

    def look_ahead(self, now: float) -> Iterator[None]:
        """Look at what is new or changed, one object at a step, if it is much; the next look remembers it.

        Between the steps anything may happen: whatever changes meanwhile is looked at again.
        """
        yield from self.reader.requests.look_ahead(now)
        unready, changed = self._look_around(now), list(self._unknown())
        for uid in changed if len(changed) > FEW_JOBS else ():
            body = self.reader.stores.jobs.get(uid)
            if body is not None and self._is_mine(body):
                self._demand_of(self._look_at(body, unready, now))
                yield

    def _unknown(self) -> Iterator[str]:
        """Jobs that were not looked at as they are now."""
        for body in self.reader.stores.jobs.values():
            uid = body.metadata.uid
            known = self._known.get(uid)
            if uid in self._asides or uid in self._going:
                continue
            if (known is None or known.facts.body is not body) and self._is_mine(body):
                yield uid

    def look(self, now: float) -> Observed:
        """Everything, as the stores have it at `now` (epoch seconds on the API server's clock)."""
        unready = self._look_around(now)
        self.reader.ledger.expire()
        bodies = {body.metadata.uid: body for body in self.reader.stores.jobs.values() if self._is_mine(body)}
        drop_absent(self._known, bodies.keys())
        drop_absent(self._demanded, bodies.keys())
        drop_absent(self._asides, bodies.keys())
        drop_absent(self._good, bodies.keys())
        drop_absent(self._going, bodies.keys())
        self.reader.keep_only(bodies.keys())
        obs = {uid: self._look_at(body, unready, now) for uid, body in bodies.items()}
        snapshot = self._take_snapshot(obs, now)
        return Observed({**obs, **{uid: aside.obs for uid, aside in self._asides.items()}}, snapshot)

    def _look_around(self, now: float) -> Unready:
        """What jobs are seen by, beside themselves; returns the nodes that are not Ready."""
        if self.reader.clock.revision != self._clock_revision:
            self._clock_revision = self.reader.clock.revision
            self.reader.nodes.clock_stepped()
            self.forget()
        self.reader.look_at_policies()
        unready = self.reader.nodes.unready_since(now)
        self.reader.outside.look(self.reader.nodes.openness(), self.reader.policies, now)
        surroundings = self.reader.surroundings(unready)
        if surroundings != self._surroundings:
            self._surroundings = surroundings
            self._distrust()
        for uid in self.reader.moved():
            if uid in self._demanded:
                self._demanded[uid].stamp = None
        return unready

    def set_aside(
        self, body: objects.CustomObject, error: Exception, *, in_allocation: bool = False, given: bool = False
    ) -> Observation:
        """The job has raised: leave it out for a while. Returns how it is seen meanwhile."""
        meta = body.metadata
        name = f"{meta.namespace}/{meta.name}"
        fault = self._bulkhead.set_aside(
            "job", meta.uid, name, error, version=meta.generation, in_allocation=in_allocation, given=given
        )
        return self._aside(body, fault)

    def _look_at(self, body: objects.CustomObject, unready: Unready, now: float) -> Observation:
        """The job as seen now, or as it can be seen while it is set aside."""
        fault = self._bulkhead.fault(body.metadata.uid, body.metadata.generation)
        if fault is not None:
            return self._aside(body, fault)
        self._asides.pop(body.metadata.uid, None)
        try:
            return self._job(body, unready, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
            return self.set_aside(body, error)

    def _aside(self, body: objects.CustomObject, fault: Fault) -> Observation:
        """As little as can be said of it; the same object as long as that does not change."""
        meta, pods = body.metadata, self.reader.ledger.own_pods(body.metadata.uid)
        known = self._asides.get(meta.uid)
        if known is None or known.body is not body or known.fault is not fault or known.pods is not pods:
            job = self.reader.bare_job(body, pods, fault.message)
            known = self._asides[meta.uid] = _Aside(body, fault, pods, Observation(job, job.status))
            known.demand = None if fault.in_allocation else self._demand_aside(job)
        self._known.pop(meta.uid, None)
        return known.obs

    def _demand_aside(self, job: Job) -> JobDemand | None:
        """As it was last, or as its pods say where nobody knows."""
        try:
            if job.uid in self._good:
                return demand_aside(self._good[job.uid], job.pods)
            return self.reader.claim(job, tuple(filter(stays, job.pods)))
        except Exception:  # then its pods count as used, like anybody's
            log.exception("job uid=%s: no demand can be made of its last good one", job.uid)
            return None

    def _distrust(self) -> None:
        """Ask anew what each job is seen by; where the answers are the same, so is what is seen."""
        for known in self._known.values():
            known.stamp = None
        for demanded in self._demanded.values():
            demanded.stamp = None

    def _is_mine(self, body: objects.CustomObject) -> bool:
        return self.reader.settings.watches(body.metadata.namespace)

    def _job(self, body: objects.CustomObject, unready: Unready, now: float) -> Observation:
        meta = body.metadata
        if meta.deletion_timestamp is not None:
            return self._deleted(body)
        uid, known = meta.uid, self._known.get(meta.uid)
        report, trouble = self._report(uid), self.troubles.message(uid)
        group = self._group(uid)
        stamp = self.reader.ledger.stamp(uid, meta.namespace, meta.name), report, group
        if known is not None and known.plain and known.is_of(body, stamp) and now < known.until and not trouble:
            return known.obs
        own = self.reader.ledger.own_pods(uid)
        as_they_are = self.reader.status(body).finished or self.reader.tells_by_itself(body)
        facts = self.reader.facts(
            body,
            pods=own if as_they_are else self.logs.as_read(uid, meta.namespace, own),
            trouble=trouble,
            blocked=self.troubles.blocked(uid),
            refused=self.troubles.refused(uid, meta.generation),
            unready=unready,
            report=report,
            heard=self._heard(uid),
            group=group,
        )
        if known is None or now >= known.until or not facts.equal(known.facts):
            obs = observe(self.reader.job(facts), unready, now)
            known = self._known[uid] = _Known(facts, obs, _valid_until(obs, now), stamp, plain=False)
        known.stamp, known.plain = stamp, facts.pods is own and not trouble
        known.plain &= known.obs.status.held_until is None
        return known.obs

    def _deleted(self, body: objects.CustomObject) -> Observation:
        """A job that only a finalizer keeps: nothing of it counts but its pods."""
        uid, pods = body.metadata.uid, self.reader.ledger.own_pods(body.metadata.uid)
        known = self._going.get(uid)
        if known is None or known[0] is not body or known[1].job.pods is not pods:
            job = self.reader.bare_job(body, pods, "")
            known = self._going[uid] = body, Observation(job, job.status)
        self._known.pop(uid, None)
        return known[1]

    def _take_snapshot(self, obs: Mapping[str, Observation], now: float) -> Snapshot:
        demands = tuple(demand for s in obs.values() if (demand := self._demand_of(s)) is not None)
        last, policies = self._snapshot, self.reader.policies
        same_jobs = last is not None and _same(last.jobs, demands)
        if not same_jobs:
            self._members = frozenset(member.uid for demand in demands for member in demand.members)
        leaving = [(s.job.namespace, pod) for s in obs.values() for pod, _ in s.gone]
        nodes, requests = self.reader.nodes.look(self._members, leaving), self.reader.requests.look(now)
        same = last is not None and same_jobs and _same(last.nodes, nodes) and last.requests is requests
        if last is None or not same or policies is not self._policies:
            last = replace(
                self._empty,
                now=now,
                nodes=nodes,
                jobs=demands,
                teams=(*policies.teams, *self._empty.teams),
                team_of=policies.team_of,
                requests=requests,
            )
            self._snapshot, self._policies = last, policies
        return last

    def _demand_of(self, obs: Observation) -> JobDemand | None:
        """What the job demands, or last did where it is set aside; None if it may have no pods."""
        aside = self._asides.get(obs.job.uid)
        if aside is None:
            try:
                return self._demand(obs)
            except Exception as error:  # noqa: BLE001 - as in `_look_at`
                body = self.reader.stores.jobs.get(obs.job.uid)
                assert body is not None, "a look awaits nothing, so the job is still there"
                self.set_aside(body, error)
                aside = self._asides[obs.job.uid]
        return aside.demand

    def _demand(self, obs: Observation) -> JobDemand | None:
        """What the job demands; None if it may have no pods."""
        job = obs.job
        known, stamp = self._demanded.get(job.uid), self.reader.ledger.stamp(job.uid, job.namespace, job.name)
        takes = self.may_take(job)
        if known is not None and known.takes is not takes:
            self.reader.outside.answered()
            known = None
        if known is not None and known.obs is obs and known.stamp == stamp:
            return known.demand
        if not obs.wants_pods:
            return self._demand_held(obs, stamp)
        shape, assumed = self.reader.shapes(job), self.reader.ledger.assumed(job.uid)
        if known is not None and known.obs is obs and known.shape is shape and known.assumed == assumed:
            known.stamp = stamp
            return known.demand
        demand = self.reader.demand(obs, shape, assumed)
        if not takes or not self._bulkhead.may_take(job.uid, job.generation):
            demand = replace(demand, takes=False)
        if known is not None and known.demand == demand:
            demand = known.demand
        self._demanded[job.uid] = _Demanded(obs, stamp, shape, assumed, demand, takes)
        self._good[job.uid] = demand
        return demand

    def _demand_held(self, obs: Observation, stamp: object) -> JobDemand | None:
        """A demand that holds the GPUs of pods whose job wants none; None if they hold none."""
        uid, pods = obs.job.uid, held(obs)
        demand, known = self.reader.claim(obs.job, pods) if pods else None, self._demanded.get(uid)
        if known is not None and known.demand == demand:
            demand = known.demand
        self._demanded[uid] = _Demanded(obs, stamp, demand=demand)
        self._good.pop(uid, None)
        return demand


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


def _valid_until(obs: Observation, now: float) -> float:
    """When time alone may make it look different; a decision that is not written down yet is made anew each time."""
    if obs.commit or obs.status is not obs.job.status:
        return -inf
    return min((time for time in (*obs.wake_at, obs.hold_until) if time > now), default=inf)


def _same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))

"""One look at everything: what is known of each job, and the snapshot that is allocated from.

A look costs what changed since the last one. What nothing changed of is the same object as before, so whoever decides
from it sees by identity that there is nothing new to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

from elastic_operator.cluster import objects
from elastic_operator.cluster.ledger import Assumed
from elastic_operator.loop.backoff import Troubles
from elastic_operator.loop.logs import FailureLogs
from elastic_operator.loop.nodes import Unready
from elastic_operator.loop.read import Facts, Reader, drop_absent
from elastic_operator.plan.demand import JobShape
from elastic_operator.plan.model import JobDemand, Snapshot
from elastic_operator.plan.observation import Observation
from elastic_operator.plan.observe import observe
from elastic_operator.plan.reported import Report
from elastic_operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look saw: jobs by uid, and what to allocate from."""

    seen: Mapping[str, Observation]
    snapshot: Snapshot


@dataclass(slots=True)
class _Known:
    """One job as last looked at. Time alone changes nothing of `seen` before `until`.

    `stamp` is the ledger's. `plain`: nothing but its own body, its pods and the surroundings decides how it looks.
    """

    facts: Facts
    seen: Observation
    until: float
    stamp: object
    plain: bool

    def is_of(self, body: objects.CustomObject, stamp: object) -> bool:
        """Whether neither the job nor its pods have changed since."""
        return self.facts.body is body and self.stamp == stamp


@dataclass(slots=True)
class _Demanded:
    """What a job demands (None: nothing), and what that was made from."""

    seen: Observation
    stamp: object
    shape: JobShape | None = None
    assumed: tuple[Assumed, ...] = ()
    demand: JobDemand | None = None


def _nothing_reported(_uid: str) -> Report | None:
    """For a view that nobody asks masters for."""
    return None


class View:
    """Remembers what it saw, and from what."""

    def __init__(
        self,
        reader: Reader,
        logs: FailureLogs,
        troubles: Troubles,
        report: Callable[[str], Report | None] = _nothing_reported,
    ) -> None:
        self.reader, self.logs, self.troubles, self._report = reader, logs, troubles, report
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

    def look(self, now: float) -> Sight:
        """Everything, as the stores have it at `now` (epoch seconds on the API server's clock)."""
        if self.reader.clock.revision != self._clock_revision:
            self._clock_revision = self.reader.clock.revision
            self.reader.nodes.clock_stepped()
            self.forget()
        self.reader.ledger.expire()
        self.reader.look_at_policies()
        unready = self.reader.nodes.unready_since(now)
        bodies = {body.metadata.uid: body for body in self.reader.stores.jobs.values() if self._is_mine(body)}
        drop_absent(self._known, bodies.keys())
        drop_absent(self._demanded, bodies.keys())
        self.reader.keep_only(bodies.keys())
        surroundings = self.reader.surroundings(unready)
        if surroundings != self._surroundings:
            self._surroundings = surroundings
            self._distrust()
        seen = {uid: self._job(body, unready, now) for uid, body in bodies.items()}
        return Sight(seen, self._take_snapshot(seen, now))

    def _distrust(self) -> None:
        """Ask anew what each job is seen by; where the answers are the same, so is what is seen."""
        for known in self._known.values():
            known.stamp = None
        for demanded in self._demanded.values():
            demanded.stamp = None

    def _is_mine(self, body: objects.CustomObject) -> bool:
        return body.metadata.deletion_timestamp is None and self.reader.settings.watches(body.metadata.namespace)

    def _job(self, body: objects.CustomObject, unready: Unready, now: float) -> Observation:
        meta = body.metadata
        uid, known = meta.uid, self._known.get(meta.uid)
        report, trouble = self._report(uid), self.troubles.message(uid)
        stamp = self.reader.ledger.stamp(uid, meta.namespace, meta.name), report
        if known is not None and known.plain and known.is_of(body, stamp) and now < known.until and not trouble:
            return known.seen
        own = self.reader.ledger.own_pods(uid)
        as_they_are = self.reader.status(body).finished or self.reader.tells_by_itself(body)
        facts = self.reader.facts(
            body,
            pods=own if as_they_are else self.logs.as_read(meta.namespace, own),
            trouble=trouble,
            blocked=self.troubles.blocked(uid),
            refused=self.troubles.refused(uid, meta.generation),
            unready=unready,
            report=report,
        )
        if known is None or now >= known.until or not facts.equal(known.facts):
            seen = observe(self.reader.job(facts), unready, now)
            known = self._known[uid] = _Known(facts, seen, _valid_until(seen, now), stamp, plain=False)
        known.stamp, known.plain = stamp, facts.pods is own and not trouble
        return known.seen

    def _take_snapshot(self, seen: Mapping[str, Observation], now: float) -> Snapshot:
        demands = tuple(demand for s in seen.values() if (demand := self._demand(s)) is not None)
        last, policies = self._snapshot, self.reader.policies
        same_jobs = last is not None and _same(last.jobs, demands)
        if not same_jobs:
            self._members = frozenset(member.uid for demand in demands for member in demand.members)
        leaving = [(s.job.namespace, pod) for s in seen.values() for pod, _ in s.gone]
        nodes, requests = self.reader.nodes.look(self._members, leaving), self.reader.requests.look(now)
        same = last is not None and same_jobs and _same(last.nodes, nodes) and last.requests is requests
        if last is None or not same or policies is not self._policies:
            last = replace(
                self._empty,
                now=now,
                nodes=nodes,
                jobs=demands,
                teams=policies.teams,
                team_of=policies.team_of,
                requests=requests,
            )
            self._snapshot, self._policies = last, policies
        return last

    def _demand(self, seen: Observation) -> JobDemand | None:
        """What the job demands; None if it may have no pods."""
        job = seen.job
        known, stamp = self._demanded.get(job.uid), self.reader.ledger.stamp(job.uid, job.namespace, job.name)
        if known is not None and known.seen is seen and known.stamp == stamp:
            return known.demand
        if not seen.wants_pods:
            self._demanded[job.uid] = _Demanded(seen, stamp)
            return None
        shape, assumed = self.reader.shapes(job), self.reader.ledger.assumed(job.uid)
        if known is not None and known.seen is seen and known.shape is shape and known.assumed == assumed:
            known.stamp = stamp
            return known.demand
        demand = self.reader.demand(seen, shape, assumed)
        if known is not None and known.demand == demand:
            demand = known.demand
        self._demanded[job.uid] = _Demanded(seen, stamp, shape, assumed, demand)
        return demand


def _without_contents(settings: Settings) -> Snapshot:
    """What every snapshot has from the settings."""
    return Snapshot(
        now=0.0,
        nodes=(),
        jobs=(),
        gpu_resources=settings.gpu_resources,
        flavors=settings.gpu_flavors,
        default_team=settings.default_team,
        starvation_seconds=settings.starvation_seconds,
    )


def _valid_until(seen: Observation, now: float) -> float:
    """When time alone may make it look different; a decision that is not written down yet is made anew each time."""
    if seen.commit or seen.status is not seen.job.status:
        return -inf
    return min((time for time in (*seen.wake_at, seen.hold_until) if time > now), default=inf)


def _same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))

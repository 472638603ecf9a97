"""One look at everything: what is known of each job, and the snapshot that is allocated from.

A look costs what changed since the last one. What nothing changed of is the same object as before, so whoever decides
from it sees by identity that there is nothing new to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from elastic_operator.cluster import objects
from elastic_operator.cluster.ledger import Assumed
from elastic_operator.loop.backoff import Troubles
from elastic_operator.loop.logs import FailureLogs
from elastic_operator.loop.read import Facts, Reader, Shapes, Unready, drop_absent
from elastic_operator.plan.model import JobDemand, Snapshot
from elastic_operator.plan.observation import Observation
from elastic_operator.plan.observe import observe


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look saw: jobs by uid, and what to allocate from."""

    seen: Mapping[str, Observation]
    snapshot: Snapshot


@dataclass(slots=True)
class _Known:
    """One job as last looked at. Time alone changes nothing of `seen` before `until`."""

    facts: Facts
    seen: Observation
    until: float


@dataclass(slots=True)
class _Demanded:
    """What a job demands, and what that was made from."""

    seen: Observation
    shapes: Shapes
    assumed: tuple[Assumed, ...]
    demand: JobDemand


class View:
    """Remembers what it saw, and from what."""

    def __init__(self, reader: Reader, logs: FailureLogs, troubles: Troubles) -> None:
        self.reader, self.logs, self.troubles = reader, logs, troubles
        self._known: dict[str, _Known] = {}
        self._demanded: dict[str, _Demanded] = {}
        self._snapshot: Snapshot | None = None
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
            self.reader.clock_stepped()
            self.forget()
        self.reader.ledger.expire()
        unready = self.reader.unready_since(now)
        bodies = {body.metadata.uid: body for body in self.reader.stores.jobs.values() if self._is_mine(body)}
        drop_absent(self._known, bodies.keys())
        drop_absent(self._demanded, bodies.keys())
        self.reader.keep_only(bodies.keys())
        seen = {uid: self._job(body, unready, now) for uid, body in bodies.items()}
        return Sight(seen, self._take_snapshot(seen, now))

    def _is_mine(self, body: objects.CustomObject) -> bool:
        return body.metadata.deletion_timestamp is None and self.reader.settings.watches(body.metadata.namespace)

    def _job(self, body: objects.CustomObject, unready: Unready, now: float) -> Observation:
        uid = body.metadata.uid
        own = self.reader.ledger.own_pods(uid)
        facts = self.reader.facts(
            body,
            pods=own if self.reader.status(body).finished else self.logs.as_read(body.metadata.namespace, own),
            trouble=self.troubles.message(uid),
            blocked=self.troubles.blocked(uid),
            refused=self.troubles.refused(uid, body.metadata.generation),
            unready=unready,
        )
        known = self._known.get(uid)
        if known is None or now >= known.until or not facts.equal(known.facts):
            seen = observe(self.reader.job(facts), unready, now)
            known = self._known[uid] = _Known(facts, seen, _valid_until(seen, now))
        return known.seen

    def _take_snapshot(self, seen: Mapping[str, Observation], now: float) -> Snapshot:
        demands = tuple(self._demand(s) for s in seen.values() if s.wants_pods)
        members = {member.uid for demand in demands for member in demand.members}
        nodes = self.reader.nodes(members, [pod for s in seen.values() for pod, _ in s.gone])
        last = self._snapshot
        if last is None or not (_same(last.jobs, demands) and _same(last.nodes, nodes)):
            last = Snapshot(now=now, nodes=nodes, jobs=demands, gpu_resources=self.reader.settings.gpu_resources)
            self._snapshot = last
        return last

    def _demand(self, seen: Observation) -> JobDemand:
        uid = seen.job.uid
        shapes, assumed = self.reader.shapes(seen.job), self.reader.ledger.assumed(uid)
        known = self._demanded.get(uid)
        if known is not None and known.seen is seen and known.shapes is shapes and known.assumed == assumed:
            return known.demand
        demand = self.reader.demand(seen, shapes, assumed)
        if known is not None and known.demand == demand:
            demand = known.demand
        self._demanded[uid] = _Demanded(seen, shapes, assumed, demand)
        return demand


def _valid_until(seen: Observation, now: float) -> float:
    """When time alone may make it look different; a decision that is not written down yet is made anew each time."""
    if seen.commit or seen.status is not seen.job.status:
        return -inf
    return min((time for time in (*seen.wake_at, seen.hold_until) if time > now), default=inf)


def _same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))

"""The result of one pass: each job's grant with its reason, and the preempted pods with their preemptors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from math import inf
from typing import Any

from elastic_api.status import SizeReason
from elastic_operator.plan.allocation.accounts import Accounts
from elastic_operator.plan.allocation.assignments import assignment_of
from elastic_operator.plan.allocation.check_evictions import OverEvictionLimit, preemptor_of
from elastic_operator.plan.allocation.entry import Entry, Victim
from elastic_operator.plan.allocation.explain import Explainer
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.decisions import Assignment, Grant, Nomination
from elastic_operator.plan.facts.demand import JobDemand, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import PreemptorKey
from elastic_operator.plan.facts.text import Reason

_KEEPS = "The job keeps its pods until the next change."


class Allocation(Mapping[str, Grant]):
    """The grants, by the uid of the job. Reasons are put into words only when a grant is read (23).

    It must not be read after the state has begun the next pass.
    """

    def __init__(self, state: AllocationState, still_futile: frozenset[str] = frozenset()) -> None:
        self._own, self._revision = state, state.revision
        self._explainer = Explainer(state)
        self._grants: dict[str, Grant] = {}
        self.changed_entries: AbstractSet[Entry] = state.take_reassigned()
        """The entries whose assignment may differ from that in the last allocation of the same state."""
        self.still_futile = still_futile
        """The preemptors (uids) whose preemption was futile in the last try of the pass, too (112, 219)."""
        self.withheld: Mapping[str, str] = {}
        """Jobs (uids) that get nothing, because their part would not last, each with the reason in words (143)."""

    def __iter__(self) -> Iterator[str]:
        return (job.uid for job in self.inputs.jobs)

    def __len__(self) -> int:
        return len(self.inputs.jobs)

    def __contains__(self, uid: object) -> bool:
        return isinstance(uid, str) and self._find(uid) is not None

    def _find(self, uid: str) -> Entry | None:
        """The entry of the job; None for a job that is not in the input."""
        entry = self._state.queues.by_uid.get(uid)
        return None if entry is None or entry.is_foreign_pod else entry

    def _entry(self, uid: str) -> Entry:
        """The entry of the job. Raises KeyError for a job that is not in the input."""
        entry = self._find(uid)
        if entry is None:
            raise KeyError(uid)
        return entry

    def __getitem__(self, uid: str) -> Grant:
        if uid not in self._grants:
            entry = self._entry(uid)
            assignment = self.assignment(uid)
            preemptors = self._preemptors(uid)
            size_reason, requeue_at = self._why(entry)
            self._grants[uid] = Grant(
                assignment,
                assignment.replicas,
                size_reason,
                requeue_at,
                preemptors=_named(preemptors),
                reclaimed=any(map(entry.is_eviction_by, preemptors)),
                only_for_foreign_pods=bool(assignment.release)
                and self._victims_of_nominations.issuperset(assignment.release),
                victim_jobs=_named(
                    victim.victim_job
                    for victim in self._state.victims.taken_for(entry)
                    if victim.victim_job.team != entry.team
                ),
            )
        return self._grants[uid]

    def get(self, uid: str, default: Any = None) -> Grant | Any:
        """The job's grant; `default` for a job that is not in the input.

        `Mapping.get` would also return the default if the words of the reason raised a KeyError.
        """
        return default if self._find(uid) is None else self[uid]

    def _why(self, entry: Entry) -> tuple[Reason, float]:
        why = self.withheld.get(entry.demand.uid)
        if why is None:
            return self._explainer.why(entry)
        return Reason(SizeReason.WOULD_NOT_LAST, f"{why} {_KEEPS}"), inf

    @property
    def _state(self) -> AllocationState:
        assert self._own.revision == self._revision, "read after the next pass has begun"
        return self._own

    @property
    def inputs(self) -> AllocationInputs:
        """The input that the allocation was made from."""
        return self._state.inputs

    @property
    def reassigned(self) -> AbstractSet[str]:
        """The jobs (uids) whose assignment may differ from that in the last allocation, and jobs deleted since."""
        return {entry.demand.uid for entry in self.changed_entries if not entry.is_foreign_pod}

    @property
    def has_shrinking_jobs(self) -> bool:
        """Whether any job loses a pod."""
        return any(entry.loses_members for entry in self._state.this_pass.changed)

    @property
    def accounts(self) -> Accounts:
        """The use and the limits of each team once this allocation is carried out."""
        return self._state.accounts

    @cached_property
    def nominations(self) -> tuple[Nomination, ...]:
        """Places for foreign pods that have none yet and whose team is entitled to one (41)."""
        if not self._state.inputs.foreign_pods:
            return ()
        placed = (entry for entry in self._state.queues.entries if entry.is_foreign_pod and entry.placements)
        return tuple(_nomination(self._state, e) for e in placed if e.promised_node == e.reserved_node)

    @cached_property
    def _victims_of_nominations(self) -> frozenset[str]:
        """The pods (uids) that make room for nominated foreign pods."""
        return frozenset(victim for nomination in self.nominations for victim in nomination.victims)

    @cached_property
    def evictions(self) -> Mapping[str, Mapping[str, str]]:
        """The jobs (uids) that release pods for other teams or for foreign pods, in the order in which jobs are served.
        Each has these preemptors: uid to name.
        """
        losing = sorted((self._entry(uid) for uid in self._victims), key=lambda entry: entry.position)
        found = ((e.demand.uid, _named(filter(e.is_eviction_by, self._preemptors(e.demand.uid)))) for e in losing)
        return {uid: preemptors for uid, preemptors in found if preemptors}

    @property
    def evicted_for(self) -> Mapping[str, PreemptorKey]:
        """The pods (uids) that are evicted for another team or for a foreign pod, each with its preemptor."""
        return self._state.victims.evictions.evicted

    @cached_property
    def preempted_pods(self) -> frozenset[str]:
        return frozenset(victim.pod.uid for victims in self._victims.values() for victim in victims)

    @cached_property
    def _victims(self) -> Mapping[str, Sequence[Victim]]:
        """The preempted pods of each job, by the job's uid."""
        found: dict[str, list[Victim]] = {}
        for victim in self._state.victims.standing():
            found.setdefault(victim.victim_job.demand.uid, []).append(victim)
        return found

    @cached_property
    def over_eviction_limit(self) -> tuple[OverEvictionLimit, ...]:
        """The entries that a limit on evictions stops, in the order in which jobs are served (138)."""
        hits = sorted(self._state.victims.over_eviction_limit.items(), key=lambda one: one[0].position)
        return tuple(OverEvictionLimit(one.demand, one.is_foreign_pod, preemptor_of(one), hit) for one, hit in hits)

    @property
    def tried_gangs(self) -> frozenset[str]:
        """The gangs of foreign pods for which the pass looked for places, in any of its tries (144)."""
        return frozenset(self._state.this_pass.tried_gangs)

    def _preemptors(self, uid: str) -> list[Entry]:
        """The entries for which pods of that job are preempted, in the order in which they are served. A preemptor
        whose victims the job keeps after all is not among them.
        """
        return sorted({victim.preemptor for victim in self._victims.get(uid, ())}, key=lambda entry: entry.position)

    def job_preemptors(self, uid: str) -> tuple[str, ...]:
        """The jobs (uids) for which pods of that job are preempted, in the order in which jobs are served."""
        return tuple(one.demand.uid for one in self._preemptors(uid) if not one.is_foreign_pod)

    def has_foreign_preemptors(self, uid: str) -> bool:
        """Whether pods of that job are preempted for foreign pods."""
        return any(victim.preemptor.is_foreign_pod for victim in self._victims.get(uid, ()))

    def preemptors_by_pod(self, uid: str) -> Mapping[str, str]:
        """The preempted pods (uids) of that job, each with the uid of its preemptor."""
        return {victim.pod.uid: victim.preemptor.demand.uid for victim in self._victims.get(uid, ())}

    def demand(self, uid: str) -> JobDemand:
        """The job's demand in this pass."""
        return self._entry(uid).demand

    @property
    def waiting_for_gangs(self) -> frozenset[str]:
        """The jobs (uids) that preempt no pods until large gangs have their nodes (217)."""
        state = self._state
        if not state.this_pass.flavors_of_large_gangs:
            return frozenset()
        waiting = (entry for entry in state.queues.entries if state.preemption_bar(entry) is PreemptionBar.GANG_FIRST)
        return frozenset(entry.demand.uid for entry in waiting)

    @property
    def gangs_first_until(self) -> float:
        """When (epoch seconds) a job next ends its wait for large gangs without their nodes (217); infinity for never.

        Jobs that got room meanwhile count, too: they may have waited earlier in the pass.
        """
        flavors = self._state.this_pass.flavors_of_large_gangs
        if not flavors:
            return inf
        times = (job.yields_until for job in self.inputs.jobs if job.shape.flavor in flavors)
        return min((time for time in times if time > self.inputs.now), default=inf)

    def has_victims(self, uid: str) -> bool:
        """Whether pods of other jobs are preempted for the job."""
        return any(True for _ in self._state.victims.taken_for(self._entry(uid)))

    def gpus_taken_for(self, uid: str) -> int:
        """The GPUs of the pods that are preempted for the job, in its own team and in others."""
        return sum(victim.pod.gpus for victim in self._state.victims.taken_for(self._entry(uid)))

    def position(self, uid: str) -> int:
        """The job's position in the order in which jobs are served."""
        return self._entry(uid).position

    def find_assignment(self, uid: str) -> Assignment | None:
        """The assignment; None for a job that is not in the input."""
        return None if self._find(uid) is None else self.assignment(uid)

    def assignment(self, uid: str) -> Assignment:
        """The grant without its reasons. Raises KeyError for a job that is not in the input."""
        entry, state = self._entry(uid), self._state
        if entry.assignment is None:
            entry.assignment = assignment_of(state, entry)
        return entry.assignment


def _nomination(state: AllocationState, entry: Entry) -> Nomination:
    node = entry.placements[0].node_number
    victims = tuple(state.victims.taken_for(entry))
    return Nomination(
        uid=entry.demand.uid,
        namespace=entry.demand.namespace,
        name=entry.demand.name,
        node=state.board.nodes[node].name,
        victims=tuple(victim.pod.uid for victim in victims),
        evicts_from=_named(victim.victim_job for victim in victims),
        reserved=entry.reserved_node,
        gang=entry.gang,
    )


def _named(entries: Iterable[Entry]) -> Mapping[str, str]:
    return {entry.demand.uid: f"{entry.demand.namespace}/{entry.demand.name}" for entry in entries}

"""Says why a job is not bigger, or does not run: the reason and the sentence that users read.

Each message states what the job requests, what is free, which limit applies, and one action. A message does not change
while only time passes. This module reads the final state and decides nothing. Reasons from the job's own state, such
as a back-off, are in `plan.job.conditions`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from elastic_api.status import SizeReason, rfc3339
from elastic_operator.plan.allocation.check_evictions import EvictionLimitHit
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.equivalence import equivalence_key
from elastic_operator.plan.allocation.explain_quota import used_by_others, why_excluded, why_quota
from elastic_operator.plan.allocation.fit import AVOIDED
from elastic_operator.plan.allocation.node_requests import may_request_nodes
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.allocation.supply import Supplies, Supply
from elastic_operator.plan.facts.demand import FailedSize, JobDemand
from elastic_operator.plan.facts.node import CORDONED
from elastic_operator.plan.facts.text import Reason, gpus, joined, listed, pods, sentence
from elastic_operator.plan.facts.times import status_time
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

_SHOWN = 3
"""A message names at most this many things, and counts the others."""


@dataclass(frozen=True, slots=True)
class _Need:
    """The pods that a job lacks: `count` more of `role`, to reach `size`."""

    entry: Entry
    size: int
    role: str
    count: int
    supply: Supply

    @property
    def gpus(self) -> int:
        return self.supply.requirements.gpus


_GROWS_LATER = (
    "the job grows elasticity.scaleUpDelaySeconds after its last change of size is complete. Lower that to grow sooner,"
    " or wait."
)
_GROWS_LESS = (
    "the job delays its growth, because each change of size sends it back to its last checkpoint. To avoid the delay,"
    " run it in Elastic mode with the library or with elasticity.checkpointPath, or set"
    " elasticity.scaleUpDelaySeconds to 0."
)


class Explainer:
    """Answers for all jobs of one pass. Numbers that several answers need are computed once."""

    def __init__(self, state: AllocationState) -> None:
        self._state = state
        self._supplies = Supplies(state)

    def why(self, entry: Entry) -> tuple[Reason, float]:
        """Why the job gets no larger size, and when (epoch seconds) time alone may change that; infinity for never."""
        if not entry.demand.wants_pods:
            return Reason(SizeReason.SUSPENDED, ""), inf
        if not entry.demand.sizes:
            text = f"The job is ending: it keeps {pods(entry.size)} and gets no new ones."
            return Reason(SizeReason.AT_MAXIMUM, text), inf
        if waiting := self._why_waiting(entry):
            return waiting, inf
        if entry.size >= entry.demand.sizes[-1]:
            return Reason(SizeReason.AT_MAXIMUM, f"{_head(entry)} Raise maxReplicas to let it grow."), inf
        larger = next(n for n in entry.demand.sizes if n > entry.size)
        wanted = f"{_head(entry)} {pods(larger)} use {gpus(entry.demand.gpus_of_size(larger))}"
        if refused := why_excluded(entry, larger, wanted):
            return refused, inf
        size = entry.next_size if entry.admitted else entry.sizes[0]
        assert size is not None, "a larger size is allowed, as neither flavor nor team rules it out"
        return self._why_no_more(entry, size)

    def _why_waiting(self, entry: Entry) -> Reason | None:
        if entry.demand.provisioning_pods and entry.admitted:
            text = f"{_head(entry)} There is room for its pods now; the scheduler has not placed them yet."
            return Reason(SizeReason.WAITING_FOR_NODES, text)
        if not entry.requests_nodes and not (entry.sizes and may_request_nodes(self._state, entry)):
            return None
        request = entry.demand.node_request if entry.demand.provisioning_pods else None
        ends_at = request.ends_at if request is not None else None
        until = f" until {_time(ends_at)}" if ends_at is not None else ""
        then = (
            f"Its pods wait for the cluster's autoscaler to add nodes{until}. If it adds none, the operator deletes the"
            " pods and retries later."
            if entry.requests_nodes
            else "New nodes are requested later: first, the jobs for which room is held get their pods. Pods that"
            " waited for new nodes now would take that room."
        )
        need = self._need(entry, entry.demand.minimum)
        return Reason(SizeReason.WAITING_FOR_NODES, f"{_wanted(need)}; {_usable(need)}. {then}")

    def _why_no_more(self, entry: Entry, size: int) -> tuple[Reason, float]:
        demand, failed = entry.demand, entry.demand.failed
        if failed is not None and failed.delays(size, self._state.now):
            return Reason(SizeReason.SCALE_UP_FAILED, joined(_head(entry), *_why_failed(failed))), failed.until
        need = self._need(entry, size)
        if entry.admitted and self._state.now < demand.grow_at(size) and need.supply.fitting >= need.count:
            later = _GROWS_LESS if demand.resize_cost and demand.changed_at is not None else _GROWS_LATER
            text = f"{_head(entry)} There is room for {pods(size)}; {later}"
            return Reason(SizeReason.SCALE_UP_DELAYED, text), demand.next_growth(self._state.now)
        if refused := why_quota(self._state, entry, size, _wanted(need)):
            return refused, inf
        if limited := self._eviction_limit_hit(entry):
            why = limited.reason
            return Reason(why.code, f"{_wanted(need)}. {why.message}"), inf
        lacking = self._why_no_room(need)
        text, requeue_at = _with_time_of_request(entry, lacking.message, self._state.now)
        text = joined(text, *_avoided(demand), self._why_no_preemption(entry))
        return Reason(lacking.code, text), requeue_at

    def _why_no_preemption(self, entry: Entry) -> str:
        """Why the operator evicts no pods for the job, and what its user can do."""
        bar = self._state.preemption_bar(entry)
        if bar is None:
            return ""
        until = entry.demand.bar.until
        when = f"before {_time(until)}" if self._state.now < until < inf else "for now"
        action = "Correct the job, or wait." if bar.is_lifted_by_edit else "Wait."
        return f"The operator evicts no pods for this job {when}, because {bar}. {action}"

    def _eviction_limit_hit(self, entry: Entry) -> EvictionLimitHit | None:
        """The refusal by a limit on evictions; None if no limit refused. If the pass examined only an entry with an
        equal wish, that entry's refusal counts.
        """
        own = self._state.victims.over_eviction_limit.get(entry)
        return own or self._eviction_limit_hits.get(self._wants_alike(entry))

    @cached_property
    def _eviction_limit_hits(self) -> Mapping[Hashable, EvictionLimitHit]:
        return {self._wants_alike(entry): one for entry, one in self._state.victims.over_eviction_limit.items()}

    def _wants_alike(self, entry: Entry) -> Hashable:
        """The key of entries with an equal wish, if they have no pods yet or want to grow."""
        if entry.size and not entry.admitted:
            return entry
        size = (entry.next_size if entry.admitted else entry.demand.minimum) or 0
        return equivalence_key(self._state, entry), entry.missing(size)

    def _need(self, entry: Entry, size: int) -> _Need:
        """The role that is hardest to place, and the number of its pods."""
        master, workers = entry.missing(size)
        if entry.master is entry.worker:
            return _Need(entry, size, ROLE_WORKER, workers + master, self._supplies.supply_for(entry.worker))
        lone_master = _Need(entry, size, ROLE_MASTER, 1, self._supplies.supply_for(entry.master))
        if master and (not workers or not lone_master.supply.fitting):
            return lone_master
        return _Need(entry, size, ROLE_WORKER, workers, self._supplies.supply_for(entry.worker))

    def _why_no_room(self, need: _Need) -> Reason:
        supply = need.supply
        if not supply.requirements.nodes and not supply.closed:
            return _no_such_node(need, self._supplies.misfits(supply.requirements))
        if need.entry.admitted and 0 < supply.fitting < need.count:
            return _size_not_allowed(need)
        if need.gpus and supply.by_gpus < need.count and supply.free_gpus >= need.count * need.gpus:
            return _nodes(need) if _too_large(supply) else _fragmented(need)
        if supply.requirements.nodes and supply.by_gpus >= need.count > supply.fitting:
            return _other_resources(need)
        if not self._supplies.fit_without_others(need.entry, supply.requirements, need.count):
            return _nodes(need)
        if self._supplies.fit_without_others(need.entry, supply.requirements, need.count, team=need.entry.team):
            return _other_jobs(need)
        stopped = self._state.inputs.reclaim_stopped
        return used_by_others(need.entry, need.size, _wanted(need), _usable(need), reclaim_stopped=stopped)


def _with_time_of_request(entry: Entry, message: str, now: float) -> tuple[str, float]:
    """The message, with the time from which new nodes are requested if that is later, and this time, or infinity."""
    request = entry.demand.node_request
    if entry.admitted or request is None or request.begins_at <= now:
        return message, inf
    return f"{message} New nodes are requested from {_time(request.begins_at)} on.", request.begins_at


def _why_failed(failed: FailedSize) -> tuple[str, ...]:
    """Why the job is not tried with more pods, and when it is. Which size was tried is not known."""
    if failed.until == inf:
        return ("It gets no more pods.",)
    tried = f"The last attempt failed: {failed.reason}" if failed.reason else "The last attempt failed."
    return sentence(tried), f"The operator retries at {_time(failed.until)}."


def _avoided(demand: JobDemand) -> tuple[str, ...]:
    """A sentence on each node that the job avoids; if there are many, only some are named."""
    left = len(demand.avoided) - _SHOWN
    return (*demand.avoided[:_SHOWN], f"It avoids {left} more." if left > 0 else "")


def _no_such_node(need: _Need, misfits: Sequence[tuple[str, int]]) -> Reason:
    """`misfits` are the reasons why nodes are unsuitable, with the numbers of these nodes."""
    reasons = [f"{n} of them: {reason}" for reason, n in misfits]
    nodes = sum(n for _, n in misfits)
    found = f"none of the {nodes} nodes suits the pods ({listed(reasons, _SHOWN)})" if nodes else "there are no nodes"
    if nodes == 1:
        found = f"the only node does not suit the pods ({misfits[0][0]})"
    if any(reason == AVOIDED for reason, _ in misfits):
        return Reason(SizeReason.INSUFFICIENT_NODES, f"{_wanted(need)}; {found}. Add a node, or wait.")
    text = f"{_wanted(need)}; {found}. Change the template's nodeSelector, affinity or tolerations, or add a node."
    return Reason(SizeReason.NODE_SELECTOR_UNSATISFIED, text)


def _size_not_allowed(need: _Need) -> Reason:
    text = (
        f"{_wanted(need)}; there is room for {need.supply.fitting}, and the next allowed size is {need.size}."
        " Allow sizes in between (allowedReplicas, replicaStep), or wait."
    )
    return Reason(SizeReason.SIZE_NOT_ALLOWED, text)


def _fragmented(need: _Need) -> Reason:
    text = (
        f"{_wanted(need)}; {_usable(need)}, but spread over so many nodes that the pods do not fit."
        " Use pods with fewer GPUs each, or wait."
    )
    return Reason(SizeReason.GPUS_FRAGMENTED, text)


def _other_resources(need: _Need) -> Reason:
    supply = need.supply
    lacking = listed(supply.lacking, _SHOWN) or "cpu or memory"
    short = [
        name for name in supply.lacking if supply.largest.get(name, 0) < dict(supply.requirements.needs).get(name, 0)
    ]
    wanted = _amounts(need, [name for name, _ in supply.requirements.needs if name in supply.lacking])
    action = "Ask for less per pod" if short else "Ask for less per pod, free some, or wait"
    but = "GPUs are free, but " if need.gpus else ""
    are = "is" if len(supply.requirements.nodes) == 1 else "are"
    text = f"{_head(need.entry)} {_more(need)}{wanted}; {but}{_count_nodes(need)} {are} short of {lacking}. {action}."
    return Reason(SizeReason.INSUFFICIENT_CPU_OR_MEMORY, text)


def _other_jobs(need: _Need) -> Reason:
    action = "Wait" if need.entry.admitted else "Wait, or give the job a higher priority"
    text = f"{_wanted(need)}; {_usable(need)}, and pods of other jobs use the rest. {action}."
    return Reason(SizeReason.HIGHER_PRIORITY_JOBS, text)


def _nodes(need: _Need) -> Reason:
    supply = need.supply
    too_large = _too_large(supply)
    if too_large:
        most = listed([_amount(name, supply.largest[name]) for name in too_large], _SHOWN)
        text = f"{_wanted(need)}; the largest usable node has {most}. Ask for less per pod, or add larger nodes."
        return Reason(SizeReason.INSUFFICIENT_NODES, text)
    closed = listed([f"{node.name} is {node.why_closed}" for node in supply.closed], _SHOWN)
    cordoned = sum(node.why_closed == CORDONED for node in supply.closed)
    reopen = f"uncordon {'it' if cordoned == 1 else 'them'}, " if cordoned else ""
    action = f"{reopen}add a node, or wait"
    text = f"{_wanted(need)}; {_usable(need)}{f' ({closed})' if closed else ''}. {action[0].upper()}{action[1:]}."
    return Reason(SizeReason.INSUFFICIENT_NODES, text)


def _too_large(supply: Supply) -> list[str]:
    """The resources of which one pod needs more than any usable node has, even when empty."""
    return [name for name, n in supply.requirements.needs if supply.requirements.nodes and supply.largest[name] < n]


# -- words -------------------------------------------------------------------------------------------------------------


def _time(epoch: float) -> str:
    return rfc3339(status_time(epoch))


def _head(entry: Entry) -> str:
    least = (
        f" and needs at least {entry.demand.minimum}"
        if not entry.admitted and entry.demand.minimum < entry.demand.sizes[-1]
        else ""
    )
    return f"The job gets {entry.size} of {pods(entry.demand.sizes[-1])}{least}."


def _wanted(need: _Need) -> str:
    extended = [name for name, _ in need.supply.requirements.needs if "/" in name]
    names = extended or [name for name, _ in need.supply.requirements.needs if name != "pods"]
    return f"{_head(need.entry)} {_more(need)}{_amounts(need, names)}"


def _more(need: _Need) -> str:
    who = "A master" if need.role == ROLE_MASTER else f"{need.count} more"
    return f"{who} needs " if need.count == 1 else f"{who} need "


def _amounts(need: _Need, names: list[str]) -> str:
    needs = dict(need.supply.requirements.needs)
    each = listed([_amount(name, needs[name]) for name in names], _SHOWN) or "a place"
    return each + (" on one node" if need.count == 1 else " each")


def _usable(need: _Need) -> str:
    if not need.supply.requirements.nodes:
        return "no suitable node is usable"
    free = f"{need.supply.free_gpus} of {gpus(need.supply.all_gpus)} free" if need.gpus else "too little room"
    return f"{_count_nodes(need)} {'has' if len(need.supply.requirements.nodes) == 1 else 'have'} {free}"


def _count_nodes(need: _Need) -> str:
    n = len(need.supply.requirements.nodes)
    return f"{n} usable node{'' if n == 1 else 's'}"


def _amount(name: str, n: int) -> str:
    """The amount as users write it. Memory has up to four digits, and from 1,000 Gi on no fraction."""
    if name == "cpu":
        return f"{n // 1000 if n % 1000 == 0 else n / 1000} cpu"
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20)):
        if name in ("memory", "ephemeral-storage") and n >= size:
            return f"{n / size:{'.0f' if n >= 1000 * size else '.4g'}}{unit} {name}"
    return f"{n} {name}"

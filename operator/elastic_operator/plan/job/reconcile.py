"""What is done for one job, given what happened (`observe.py`) and what it was granted (`allocate.py`).

Creates what fits now, deletes what must go, and writes both down. The order of things is in `Plan`.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_operator.api.job import CleanPodPolicy
from elastic_operator.api.status import ConditionType, Limit
from elastic_operator.plan.facts.decisions import CreatePod, DeletePod, Event, Grant, Plan, Route, Slot
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.text import listed, pods
from elastic_operator.plan.job.conditions import with_conditions
from elastic_operator.plan.job.counts import with_counts
from elastic_operator.plan.job.group import take_report
from elastic_operator.plan.job.holding import clean_pod_policy, goes_at_the_end
from elastic_operator.plan.job.master_place import make_room_for_master
from elastic_operator.plan.job.membership import changed_membership, first_membership
from elastic_operator.plan.job.observation import Observation, at, end_incarnation, record, seconds
from elastic_operator.plan.job.waiting import seen_by

FINISH_SECONDS = 60.0
"""What the workers get to end by themselves after the master succeeded."""


def settle(seen: Observation, grant: Grant | None, *, frozen: tuple[int, int], now: float) -> Plan:
    """The plan for one job; `grant` is None where the allocator was not asked: it has no pods, or is to have none.

    `frozen` is the `min:max` that pods of a new incarnation get in their environment.
    """
    if seen.job.deleted:
        return Plan(status=seen.job.status, deletes=_of_nobody(seen, grant))
    if seen.status.finished:
        return _after_the_end(seen, grant, now)
    if grant is None:
        return _without_pods(seen, now)
    if seen.job.spec is None:
        return _unread(seen, grant, now)
    seen = take_report(seen, now)
    seen, grant = make_room_for_master(seen, grant, now)
    seen = _start_over_if_needed(seen, grant)
    seen = _write_down_change(seen, grant, now)
    creates = _creates(seen, grant, frozen, now)
    deletes = (*_deletes(seen), *_releases(seen, grant))
    staying = replace(seen, live=tuple(pod for pod in seen.live if pod.uid not in grant.release))
    plan = _plan(staying, grant, deletes, creates, now)
    return replace(plan, membership=changed_membership(staying, now))


def _plan(
    seen: Observation,
    grant: Grant | None,
    deletes: tuple[DeletePod, ...],
    creates: tuple[CreatePod, ...],
    now: float,
) -> Plan:
    status = with_counts(seen, now)
    status = with_conditions(replace(seen, status=status), grant, now)
    due = (*seen.wake_at, *seen_by(seen), seen.hold_until, grant.wake_at if grant else None)
    wakes = [w for w in due if w and w > now]
    return Plan(
        status=status,
        commit_first=seen.commit,
        deletes=deletes,
        creates=creates,
        events=seen.events,
        route=next((Route(p.pod_ip, p.node or "") for p in seen.live if p.role == "master" and p.pod_ip), Route()),
        wake_at=min(wakes, default=None),
    )


def _of_nobody(seen: Observation, grant: Grant | None) -> tuple[DeletePod, ...]:
    """Deletes of pods of a job that gets no new ones, where another team is entitled to their GPUs."""
    why = _why_smaller(grant)[1] if grant is not None else ""
    pods = [pod for pod in seen.job.pods if grant is not None and pod.uid in grant.release]
    return tuple(DeletePod(pod.name, pod.uid, why) for pod in _in_order(pods))


def _unread(seen: Observation, grant: Grant, now: float) -> Plan:
    """The plan of a job of which only its pods are known: they run on, and give back borrowed GPUs."""
    seen = _write_down_change(_start_over_if_needed(seen, grant), grant, now)
    deletes = (*_deletes(seen), *_releases(seen, grant))
    staying = replace(seen, live=tuple(pod for pod in seen.live if pod.uid not in grant.release))
    return _plan(staying, grant, deletes, (), now)


def _after_the_end(seen: Observation, grant: Grant | None, now: float) -> Plan:
    """Pods go as cleanPodPolicy says, those it keeps when others are entitled to their GPUs, the job when its time is
    over.
    """
    spec, status = seen.job.spec, seen.status
    ended = seconds(status.completion_time)
    failed = status.condition(ConditionType.FAILED)
    at_once = (failed and failed.status == "True") or all(pod.ended for pod in seen.job.pods)
    policy = clean_pod_policy(seen)
    going = [p for p in seen.job.pods if p.deleting_since is None and goes_at_the_end(p, policy)]
    due = {p.uid: ended if at_once and not _is_ending(p, policy) else ended + FINISH_SECONDS for p in going}
    why = f"the job has ended ({policy})"
    deletes = (*(DeletePod(p.name, p.uid, why) for p in going if now >= due[p.uid]), *_of_nobody(seen, grant))
    wakes = list(due.values())
    ttl = spec.ttl_seconds_after_finished if spec else None
    if ttl is not None:
        wakes.append(ended + ttl)
    plan = _plan(replace(seen, live=()), None, deletes, (), now)
    expired = ttl is not None and now >= ended + ttl
    return replace(plan, delete_job=expired, wake_at=min((w for w in wakes if w > now), default=None))


def _is_ending(pod: OwnPod, policy: CleanPodPolicy) -> bool:
    """Whether it is about to end by itself: the kubelet tells of a container's end before it tells of the pod's."""
    return policy == CleanPodPolicy.RUNNING and pod.main.exit_code is not None


def _without_pods(seen: Observation, now: float) -> Plan:
    """All pods of a suspended job are deleted. Those of another one run on, if they hold no GPU; none are created."""
    suspended = seen.job.spec is not None and seen.job.spec.suspend
    going = tuple(DeletePod(p.name, p.uid, "spec.suspend is true") for p in seen.live) if suspended else ()
    return _plan(seen, None, (*_deletes(seen), *going), (), now)


def _start_over_if_needed(seen: Observation, grant: Grant) -> Observation:
    """A group that is given up as a whole, or whose pods cannot take the new size, ends its incarnation.

    One that is left below the job's minimum does not train at any size: those that stay wait for the others (16).
    """
    if not seen.live or seen.finishing:
        return seen
    may_run = seen.job.spec is None or grant.replicas >= seen.job.spec.min_replicas
    frozen = next((pod.nnodes for pod in seen.live if pod.nnodes), None)
    if grant.replicas == 0:
        why = f"All GPUs are given back: {grant.message}"
    elif frozen and not frozen[0] <= grant.replicas <= frozen[1] and grant.replicas > len(grant.keep):
        why = f"{grant.replicas} pods are outside of {frozen[0]}:{frozen[1]}, which the running pods were made with"
    elif frozen and may_run and grant.replicas < frozen[0] and grant.release:
        why = f"{grant.replicas} pods are fewer than {frozen[0]}, which the running pods were made with"
    else:
        return seen
    gone = (*seen.gone, *((pod, why) for pod in seen.live))
    event = Event("NewIncarnation", f"{why}; all pods are replaced.")
    status = end_incarnation(seen.status)
    return replace(seen, status=status, live=(), gone=gone, commit=True, events=(*seen.events, event))


def _write_down_change(seen: Observation, grant: Grant, now: float) -> Observation:
    """A new target is history and an event. To shrink is a decision to be written before it is acted on.

    Growth is not: whoever finds its new pods, and not the status, decides the same again, and nobody waits for a write.
    """
    before, after, status = seen.status.target_replicas, grant.replicas, seen.status
    if before == after or seen.finishing:
        return _tell_of_exchange(seen, grant, now)
    update: dict[str, object] = {"target_replicas": after}
    if after < status.replicas:
        update["replicas"] = after
    if after == 0:
        update["turn_started"] = None
    if before == 0:
        asks = grant.limit == Limit.WAITING_FOR_NODES
        update["start_time"] = status.start_time or at(now)
        update["turn_started"] = None if asks else at(now)
        reason, event = "Started", Event("ScaledUp", f"Starts with {pods(after)}.")
        if asks:
            reason, event = Limit.WAITING_FOR_NODES, Event(Limit.WAITING_FOR_NODES, grant.message)
    elif after > before:
        update["resizes"] = status.resizes + 1
        reason, event = "ScaledUp", Event("ScaledUp", f"Grows from {before} to {pods(after)}.")
    else:
        planned = bool(grant.release) or after == 0
        update["resizes"] = status.resizes + (1 if planned else 0)
        reason, why = _why_smaller(grant)
        what = "Suspended:" if after == 0 and grant.takers else f"Shrinks from {before} to {pods(after)}:"
        event = Event(reason, f"{what} {why}")
    if after > before and grant.givers:
        event = Event("QuotaReclaimed", f"{event.message} {listed(grant.givers)} make way.")
    message = event.message if grant.takers or grant.givers else grant.message
    status = record(status.model_copy(update=update), now, before, after, reason, message)
    commit = seen.commit or after < before
    return replace(seen, status=status, commit=commit, events=(*seen.events, event))


def _tell_of_exchange(seen: Observation, grant: Grant, now: float) -> Observation:
    """As many pods as before, but some make way for others, and come again elsewhere.

    Where none comes, the change was written down by a leader that did not get further.
    """
    if seen.finishing or not grant.takers or not grant.create or not any(pod.uid in grant.release for pod in seen.live):
        return seen
    reason, why = _why_smaller(grant)
    told, size = f"{why} As many pods come elsewhere.", grant.replicas
    status = record(seen.status, now, size, size, reason, told)
    return replace(seen, status=status, events=(*seen.events, Event(reason, told)))


def _why_smaller(grant: Grant) -> tuple[str, str]:
    """The reason and the sentence: who gets the room, if somebody takes it."""
    if not grant.takers:
        return "ScaledDown", grant.message
    what = f"{pods(len(grant.release))} {'goes' if len(grant.release) == 1 else 'go'} for {listed(grant.takers)}"
    if grant.reclaimed:
        return "QuotaReclaimed", f"{what}, entitled to the GPUs."
    return "PreemptedByJob", f"{what}, next in the team."


def _creates(seen: Observation, grant: Grant, frozen: tuple[int, int], now: float) -> tuple[CreatePod, ...]:
    """Pods whose room is free and whose name is; a group starts only when its whole minimum can be made at once."""
    if seen.finishing or seen.job.stands or now < seen.hold_until:
        return ()
    names = {(pod.role, pod.index) for pod in seen.job.pods}
    if f"{seen.job.name}-master-0" in seen.job.foreign_names:
        names.add(("master", 0))
    slots = [slot for slot in grant.create if slot.ready and (slot.role, slot.index) not in names]
    if not seen.live and not _can_start(seen, slots):
        return ()
    slots = _to_an_allowed_size(seen, sorted(slots, key=lambda s: (s.role != "master", s.index)))
    nnodes = next((pod.nnodes for pod in seen.live if pod.nnodes), frozen)
    epoch = seen.status.master_epoch or 0
    membership = first_membership(seen, grant, slots)
    return tuple(
        CreatePod(
            slot.role,
            slot.index,
            slot.node,
            seen.status.incarnation,
            nnodes,
            epoch,
            membership,
            old_secret=_old_secret(seen),
            own_class=bool(seen.job.left_out),
        )
        for slot in slots
    )


def _old_secret(seen: Observation) -> bool:
    """Whether pods of this incarnation have their token from where an older release put it: all must have the same."""
    return any(pod.incarnation == seen.status.incarnation and not pod.own_secret for pod in seen.job.pods)


def _to_an_allowed_size(seen: Observation, slots: list[Slot]) -> list[Slot]:
    """As many as lead to an allowed size: a step of growth waits until its room is free as a whole.

    Below the minimum, and between two sizes, whatever can be made is made; a master in any case.
    """
    assert seen.job.spec is not None
    now = len(seen.live)
    reached = [size for size in seen.job.spec.sizes() if now <= size <= now + len(slots)]
    master_first = bool(slots) and slots[0].role == "master"
    return slots[: max(reached[-1] - now, master_first)] if reached else slots


def _can_start(seen: Observation, slots: list[Slot]) -> bool:
    assert seen.job.spec is not None
    return len(slots) >= seen.job.spec.min_replicas and any(slot.role == "master" for slot in slots)


def _deletes(seen: Observation) -> tuple[DeletePod, ...]:
    return tuple(
        DeletePod(pod.name, pod.uid, why, force=pod.node in seen.lost_nodes)
        for pod, why in seen.gone
        if pod.deleting_since is None or pod.node in seen.lost_nodes
    )


def _releases(seen: Observation, grant: Grant) -> tuple[DeletePod, ...]:
    """Highest worker index first, the master last."""
    going = _in_order([pod for pod in seen.live if pod.uid in grant.release])
    return tuple(DeletePod(pod.name, pod.uid, grant.message) for pod in going)


def _in_order(going: list[OwnPod]) -> list[OwnPod]:
    return sorted(going, key=lambda p: (p.role == "master", -p.index))

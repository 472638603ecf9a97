"""What is done for one job, given what has happened (`observe`) and what it was granted (`allocation`).

It creates the pods that fit now, deletes those that must go, and writes both down. `Plan` says in which order.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor

from elastic_api.job import CleanPodPolicy
from elastic_api.status import ConditionType, Limit
from elastic_api.what_if import ONCE, ONCE_SECONDS
from elastic_operator.plan.facts.decisions import CreatePod, DeletePod, Event, Grant, Plan, Route, Slot
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.roles import MASTER, master_first
from elastic_operator.plan.facts.text import listed, pods
from elastic_operator.plan.facts.times import at, lasts, seconds
from elastic_operator.plan.job.conditions import with_conditions
from elastic_operator.plan.job.counts import with_counts
from elastic_operator.plan.job.creates import creates
from elastic_operator.plan.job.group import take_report
from elastic_operator.plan.job.holding import clean_pod_policy, goes_at_the_end
from elastic_operator.plan.job.master_place import make_room_for_master
from elastic_operator.plan.job.membership import changed_membership, first_membership
from elastic_operator.plan.job.observation import Observation, end_incarnation, record
from elastic_operator.plan.job.waiting import seen_by

FINISH_SECONDS = 60.0
"""How long the workers have to end by themselves after the master has succeeded."""


def reconcile(obs: Observation, grant: Grant | None, *, now: float) -> Plan:
    """The plan for one job. `grant` is None if it takes no part in the allocation: it has or must have no pods."""
    if obs.job.deleted:
        return Plan(status=obs.job.status, deletes=_of_nobody(obs, grant))
    if obs.status.finished:
        return _after_the_end(obs, grant, now)
    if grant is None:
        return _without_pods(obs, now)
    if obs.job.spec is None:
        return _unread(obs, grant, now)
    obs = take_report(obs, now)
    obs, grant = make_room_for_master(obs, grant, now)
    obs = _start_over_if_needed(obs, grant)
    obs = _write_down_change(obs, grant, now)
    created = _creates(obs, grant, now)
    deletes = (*_deletes(obs), *_releases(obs, grant))
    staying = replace(obs, live=tuple(pod for pod in obs.live if pod.uid not in grant.release))
    plan = _plan(staying, grant, deletes, created, now)
    return replace(plan, membership=changed_membership(staying, now))


def _plan(
    obs: Observation,
    grant: Grant | None,
    deletes: tuple[DeletePod, ...],
    creates: tuple[CreatePod, ...],
    now: float,
) -> Plan:
    obs = replace(obs, going=frozenset(pod.uid for pod in deletes))
    status = with_conditions(replace(obs, status=with_counts(obs, now)), grant, now)
    due = (*obs.wake_at, *seen_by(obs), obs.hold_until, grant.wake_at if grant else None)
    wakes = [w for w in due if w and w > now]
    return Plan(
        status=status,
        commit_first=obs.commit,
        deletes=deletes,
        creates=creates,
        events=obs.events,
        route=next((Route(p.pod_ip, p.node or "") for p in obs.live if p.role == MASTER and p.pod_ip), Route()),
        wake_at=min(wakes, default=None),
    )


def _of_nobody(obs: Observation, grant: Grant | None) -> tuple[DeletePod, ...]:
    """Deletes pods of a job that gets no new ones, if another team is entitled to their GPUs (99)."""
    why = _why_smaller(grant)[1] if grant is not None else ""
    pods = [pod for pod in obs.job.pods if grant is not None and pod.uid in grant.release]
    return tuple(DeletePod(pod.name, pod.uid, why) for pod in _in_order(pods))


def _unread(obs: Observation, grant: Grant, now: float) -> Plan:
    """The plan of a job of which only the pods are known: they run on, and give back borrowed GPUs (99)."""
    obs = _write_down_change(_start_over_if_needed(obs, grant), grant, now)
    deletes = (*_deletes(obs), *_releases(obs, grant))
    staying = replace(obs, live=tuple(pod for pod in obs.live if pod.uid not in grant.release))
    return _plan(staying, grant, deletes, (), now)


def _after_the_end(obs: Observation, grant: Grant | None, now: float) -> Plan:
    """The plan of a job that has ended.

    Pods go as cleanPodPolicy says. Those that it keeps go when others are entitled to their GPUs (99). The job itself
    goes when its time is over.
    """
    spec, status = obs.job.spec, obs.status
    ended = seconds(status.completion_time)
    failed = status.condition(ConditionType.FAILED)
    at_once = (failed and failed.status == "True") or all(pod.ended for pod in obs.job.pods)
    policy = clean_pod_policy(obs)
    going = [p for p in obs.job.pods if p.deleting_since is None and goes_at_the_end(p, policy)]
    due = {p.uid: ended if at_once and not _is_ending(p, policy) else ended + FINISH_SECONDS for p in going}
    why = f"the job has ended ({policy})"
    deletes = (*(DeletePod(p.name, p.uid, why) for p in going if now >= due[p.uid]), *_of_nobody(obs, grant))
    wakes = list(due.values())
    ttl = spec.ttl_seconds_after_finished if spec else None
    if ttl is not None:
        wakes.append(ended + ttl)
    plan = _plan(replace(obs, live=()), None, deletes, (), now)
    expired = ttl is not None and now >= ended + ttl
    return replace(plan, delete_job=expired, wake_at=min((w for w in wakes if w > now), default=None))


def _is_ending(pod: OwnPod, policy: CleanPodPolicy) -> bool:
    """Whether it is about to end by itself: the kubelet reports a container's end before it reports the pod's."""
    return policy == CleanPodPolicy.RUNNING and pod.main.exit_code is not None


def _without_pods(obs: Observation, now: float) -> Plan:
    """Delete all pods of a suspended job. Pods of other jobs run on if they hold no GPU; none are created."""
    suspended = obs.job.spec is not None and obs.job.spec.suspend
    going = tuple(DeletePod(p.name, p.uid, "spec.suspend is true") for p in obs.live) if suspended else ()
    plan = _plan(obs, None, (*_deletes(obs), *going), (), now)
    return _for_a_question(obs, plan, now) if obs.job.asks and obs.job.what_if == ONCE else plan


def _for_a_question(obs: Observation, plan: Plan, now: float) -> Plan:
    """The plan of a job that was made to ask once: it goes after a while, if it never had a pod (160)."""
    if obs.job.pods or obs.status.start_time is not None:
        return plan
    expiry = obs.job.created + ONCE_SECONDS
    return replace(plan, delete_job=not lasts(expiry, ONCE_SECONDS, now), wake_at=min(plan.wake_at or expiry, expiry))


def _start_over_if_needed(obs: Observation, grant: Grant) -> Observation:
    """End the incarnation of a group that is given up as a whole, or whose pods cannot take the new size (11).

    A group below the job's minimum does not train at any size: its pods stay and wait for the others (16), but not if
    it loses a pod without a successor before it has run as a whole (142).
    """
    if not obs.live or obs.finishing:
        return obs
    may_run = obs.job.spec is None or grant.replicas >= obs.job.spec.min_replicas
    frozen = next((pod.nnodes for pod in obs.live if pod.nnodes), None)
    if grant.replicas == 0:
        why = f"All GPUs are given back: {grant.message}"
    elif frozen and not frozen[0] <= grant.replicas <= frozen[1] and grant.replicas > len(grant.keep):
        why = f"{grant.replicas} pods are outside of {frozen[0]}:{frozen[1]}, which the running pods were made with"
    elif frozen and may_run and grant.replicas < frozen[0] and grant.release:
        why = f"{grant.replicas} pods are fewer than {frozen[0]}, which the running pods were made with"
    elif not may_run and (obs.gone or grant.release) and _begins(obs):
        why = f"All GPUs are given back before the start: {grant.message}"
    else:
        return obs
    gone = (*obs.gone, *((pod, why) for pod in obs.live))
    event = Event("NewIncarnation", f"{why}; all pods are replaced.")
    status = end_incarnation(obs.status)
    return replace(obs, status=status, live=(), gone=gone, commit=True, events=(*obs.events, event))


def _begins(obs: Observation) -> bool:
    """Whether the group has not run as a whole yet: all of its pods were made since the last change of size.

    The API server's times are whole seconds, and its start may not be written yet (25).
    """
    history = obs.status.history
    last = floor(seconds(history[0].time)) if history else 0
    return obs.status.running_since is None and all(pod.created >= last for pod in obs.live)


def _write_down_change(obs: Observation, grant: Grant, now: float) -> Observation:
    """Record a new target in the history, with an event. Shrinking is written down before it is done.

    Growth is not (25): a replica that finds the new pods without the status decides the same again, and no pod waits
    for a write.
    """
    before, after, status = obs.status.target_replicas, grant.replicas, obs.status
    if before == after or obs.finishing:
        return _record_exchange(obs, grant, now)
    planned = bool(grant.release) or after == 0
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
        update["resizes"] = status.resizes + (1 if planned else 0)
        reason, why = _why_smaller(grant)
        what = "Suspended:" if after == 0 and grant.takers else f"Shrinks from {before} to {pods(after)}:"
        event = Event(reason, f"{what} {why}")
    if after > before and grant.givers:
        event = Event("QuotaReclaimed", f"{event.message} {listed(grant.givers)} make way.")
    message = event.message if grant.takers or grant.givers else grant.message
    withdrawn = after < before and not planned
    status = record(status.model_copy(update=update), now, before, after, reason, message, excused=withdrawn)
    commit = obs.commit or after < before
    return replace(obs, status=status, commit=commit, events=(*obs.events, event))


def _record_exchange(obs: Observation, grant: Grant, now: float) -> Observation:
    """Record that some pods go for others and come again elsewhere, with the size unchanged.

    If none comes again, an earlier leader has already recorded the change and got no further.
    """
    if obs.finishing or not grant.takers or not grant.create or not any(pod.uid in grant.release for pod in obs.live):
        return obs
    reason, why = _why_smaller(grant)
    told, size = f"{why} As many pods come elsewhere.", grant.replicas
    status = record(obs.status, now, size, size, reason, told)
    return replace(obs, status=status, events=(*obs.events, Event(reason, told)))


def _why_smaller(grant: Grant) -> tuple[str, str]:
    """The reason and the sentence: the takers, if there are any."""
    if not grant.takers:
        return "ScaledDown", grant.message
    what = f"{pods(len(grant.release))} {'goes' if len(grant.release) == 1 else 'go'} for {listed(grant.takers)}"
    if grant.reclaimed:
        return "QuotaReclaimed", f"{what}, entitled to the GPUs."
    return "PreemptedByJob", f"{what}, next in the team."


def _creates(obs: Observation, grant: Grant, now: float) -> tuple[CreatePod, ...]:
    """Pods whose room and name are free. A group starts only when its whole minimum can be created at once."""
    if obs.finishing or obs.job.stands or now < obs.hold_until:
        return ()
    names = {(pod.role, pod.index) for pod in obs.job.pods}
    if f"{obs.job.name}-master-0" in obs.job.foreign_names:
        names.add((MASTER, 0))
    slots = [slot for slot in grant.create if slot.ready and (slot.role, slot.index) not in names]
    if not obs.live and not _can_start(obs, slots):
        return ()
    slots = _to_an_allowed_size(obs, sorted(slots, key=master_first))
    return creates(obs, slots, membership=first_membership(obs, grant, slots))


def _to_an_allowed_size(obs: Observation, slots: list[Slot]) -> list[Slot]:
    """As many pods as lead to an allowed size: a step of growth waits until all its room is free (36).

    Below the minimum, and between two sizes, every pod that can be created is created; a master always is.
    """
    assert obs.job.spec is not None
    now = len(obs.live)
    reached = [size for size in obs.job.spec.sizes() if now <= size <= now + len(slots)]
    has_master = bool(slots) and slots[0].role == MASTER
    return slots[: max(reached[-1] - now, has_master)] if reached else slots


def _can_start(obs: Observation, slots: list[Slot]) -> bool:
    assert obs.job.spec is not None
    return len(slots) >= obs.job.spec.min_replicas and any(slot.role == MASTER for slot in slots)


def _deletes(obs: Observation) -> tuple[DeletePod, ...]:
    return tuple(
        DeletePod(pod.name, pod.uid, why, force=pod.node in obs.lost_nodes)
        for pod, why in obs.gone
        if pod.deleting_since is None or pod.node in obs.lost_nodes
    )


def _releases(obs: Observation, grant: Grant) -> tuple[DeletePod, ...]:
    """Highest worker index first, the master last."""
    going = _in_order([pod for pod in obs.live if pod.uid in grant.release])
    return tuple(DeletePod(pod.name, pod.uid, grant.message) for pod in going)


def _in_order(going: list[OwnPod]) -> list[OwnPod]:
    return sorted(going, key=master_first, reverse=True)

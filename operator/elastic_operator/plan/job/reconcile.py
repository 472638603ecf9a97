"""Plans the writes for one job, from its observation (`observe`) and its grant (`allocation`).

A plan creates the pods that fit now, deletes pods, and records both. `Plan` says in which order.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_api.pod_names import pod_name
from elastic_operator.plan.facts.decisions import Assignment, Grant, NewPods, Plan, Slot
from elastic_operator.plan.facts.pod_order import master_first, master_in
from elastic_operator.plan.job.finished import plan_finished, without_pods
from elastic_operator.plan.job.master_place import make_room_for_master
from elastic_operator.plan.job.master_report import merge_report
from elastic_operator.plan.job.membership import changed_membership, first_membership
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.plan_writes import deletes_of, deletes_of_released, make_plan, pods_to_create, reclaimed
from elastic_operator.plan.job.resize import record_change, restart_if_needed
from elastic_worker.contract import ROLE_MASTER


def reconcile(obs: Observation, grant: Grant | None, *, now: float) -> Plan:
    """The plan for one job. `grant` is None if the job takes no part in the allocation."""
    if obs.job.deleted:
        return Plan(status=obs.job.status, deletes=reclaimed(obs, grant))
    if obs.status.finished:
        return plan_finished(obs, grant, now)
    if grant is None:
        return without_pods(obs, now)
    if obs.job.spec is not None:
        obs, grant = make_room_for_master(merge_report(obs, now), grant, now)
    obs = record_change(restart_if_needed(obs, grant), grant, now)
    release = grant.assignment.release
    deletes = (*deletes_of(obs), *deletes_of_released(obs.members, release, grant.message))
    remaining = replace(obs, members=tuple(pod for pod in obs.members if pod.uid not in release))
    plan = make_plan(remaining, grant, deletes, _creates(obs, grant.assignment, now), now)
    return replace(plan, membership=changed_membership(remaining, now))


def _creates(obs: Observation, assignment: Assignment, now: float) -> NewPods | None:
    """Pods whose room and name are free. A group starts only when its whole minimum can be created at once.

    If only the pods of a job are known, no pods are created for it. Its pods continue, and give borrowed GPUs back
    (99).
    """
    if obs.job.spec is None or obs.finishing or obs.job.needs_edit or now < obs.no_pods_before:
        return None
    names = {(pod.role, pod.index) for pod in obs.job.pods}
    if pod_name(obs.job.name, ROLE_MASTER, 0) in obs.job.foreign_names:
        names.add((ROLE_MASTER, 0))
    slots = [slot for slot in assignment.create if slot.ready and (slot.role, slot.index) not in names]
    if not obs.members and not _can_start(obs, slots):
        return None
    slots = _to_an_allowed_size(obs, sorted(slots, key=master_first))
    return pods_to_create(obs, slots, membership=first_membership(obs, assignment.release, slots))


def _to_an_allowed_size(obs: Observation, slots: list[Slot]) -> list[Slot]:
    """The first of these pods that together lead to an allowed size. A step of growth waits until all its room is free
    (36).

    Below the minimum, and between two sizes, every pod that can be created is created; a master always is.
    """
    pods = len(obs.members)
    reached = [size for size in obs.spec.sizes() if pods <= size <= pods + len(slots)]
    return slots[: max(reached[-1] - pods, master_in(slots) is not None)] if reached else slots


def _can_start(obs: Observation, slots: list[Slot]) -> bool:
    return len(slots) >= obs.spec.minimum and any(slot.role == ROLE_MASTER for slot in slots)

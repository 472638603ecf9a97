"""The pods for a job's slots: pods to create, and pods that are only tried before others are preempted (139)."""

from __future__ import annotations

from collections.abc import Iterable

from elastic_api.nnodes import frozen_nnodes
from elastic_operator.plan.facts.decisions import CreatePod, Slot
from elastic_operator.plan.job.observation import Observation


def pods_to_create(obs: Observation, slots: Iterable[Slot], *, membership: str = "") -> tuple[CreatePod, ...]:
    """A pod for each slot by the job's present spec; none if the spec cannot be read.

    All pods of an incarnation have the `min:max` of its first pods in their environment (11). All have their token from
    an older release's Secret if any of them has (97).
    """
    if obs.job.spec is None:
        return ()
    present = [pod for pod in obs.job.pods if pod.incarnation == obs.status.incarnation]
    nnodes = next((pod.nnodes for pod in obs.members if pod.nnodes), None) or frozen_nnodes(obs.job.spec)
    return tuple(
        CreatePod(
            slot.role,
            slot.index,
            slot.node,
            slot.ready,
            obs.status.incarnation,
            nnodes,
            obs.status.master_epoch or 0,
            membership,
            old_secret=not all(pod.own_secret for pod in present),
            own_class=obs.job.context.has_own_class,
        )
        for slot in slots
    )

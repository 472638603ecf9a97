"""Decides whether the operator makes room for a foreign pod that waits for GPUs, and reads the pod's requirements.
`foreign_pods` remembers the result.

The operator makes room if the pod's scheduler honours nominations, and the pod lacks GPUs or has a reserved node. The
room of a pod that another program has nominated is the pod's own in any case (206).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, NamedTuple

import msgspec

from elastic_operator.cluster import objects
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.pod_shape import VolumeFacts, excluding_nodes, shape_of
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.read import convert
from elastic_operator.read.foreign.gang_key import may_be_split
from elastic_operator.read.foreign.nomination_backoffs import PodBackoff
from elastic_operator.read.foreign.reservation import Reservation
from elastic_operator.settings import Settings

NEVER_PREEMPTS = "Never"
RESERVED_IN_VAIN = "kube-scheduler did not use the nodes that were reserved for it"

Volumes = Callable[[str, Iterable[str]], VolumeFacts]
"""The known facts on the claims of a namespace with these names."""


class PodContext(NamedTuple):
    """The facts outside a pod that decide about it: its nominated node ("" if that is deleted), its back-off, and its
    volumes.
    """

    nominated: str
    backoff: PodBackoff | None
    volumes: VolumeFacts


def foreign_pod_of(
    pod: objects.Pod,
    gang: str,
    reservation: Reservation,
    context: PodContext,
    settings: Settings,
    now: float,
) -> tuple[ForeignPod | None, float]:
    """The foreign pod, None if no room is for it; and until when (epoch seconds) that stays the same."""
    holds, nominated = reservation.is_in_force(now), context.nominated if not reservation.node else ""
    if not nominated and not _is_ours_to_help(pod, settings, is_reserved=holds):
        return None, context.backoff.until if context.backoff else inf
    meta, backoff = pod.metadata, context.backoff
    own = job_shape(shape := _shape(pod, context.volumes, settings), shape, flavors=settings.allocation.flavors)
    avoided = reservation.avoided(now)
    at_present = reservation.ran_out(now) if reservation.has_run_out(now) else reservation
    if at_present.is_in_backoff(now):
        backoff = max(backoff or PodBackoff(0.0, ""), PodBackoff(at_present.backoff_until, RESERVED_IN_VAIN))
    times = [*avoided.values(), *([reservation.until] if holds else []), *([backoff.until] if backoff else [])]
    unplannable = next(_problems(own.master, own.flavor_problem, None if holds or nominated else backoff, now), "")
    shape = excluding_nodes(own.master, avoided if holds else {*avoided, reservation.node} - {""})
    demand = JobDemand(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        priority=pod.spec.priority or 0,
        created=convert.epoch(meta.creation_timestamp or ""),
        sizes=(1,),
        shape=JobShape(shape, shape, own.flavor),  # its problem is in `unplannable`
    )
    foreign_pod = ForeignPod(
        demand,
        nominated=nominated,
        reserved=reservation.node if holds else "",
        preempts=pod.spec.preemption_policy != NEVER_PREEMPTS,
        unplannable=unplannable,
        gang=gang,
        may_be_split=may_be_split(pod),
    )
    return foreign_pod, min((time for time in times if time > now), default=inf)


def _is_ours_to_help(pod: objects.Pod, settings: Settings, *, is_reserved: bool) -> bool:
    """Whether the pod's scheduler honours nominations, and the pod lacks GPUs or a node is reserved for it. False for a
    pod with scheduling gates.

    If kube-scheduler does not report a lack of GPUs, something else keeps the pod from starting, and more GPUs would
    not help.
    """
    spec = pod.spec
    if spec.scheduler_name not in settings.nominate_for or spec.scheduling_gates or pod.metadata.labels.queue:
        return False
    if is_reserved:
        return True
    message, _ = convert.scheduler_messages(pod)
    # The whole resource, and not one whose name only begins with it.
    names = map(re.escape, settings.allocation.gpu_resources)
    return any(re.search(rf"Insufficient {name}(?![\w/-]|\.\w)", message) for name in names)


def _shape(pod: objects.Pod, volumes: VolumeFacts, settings: Settings) -> PodShape:
    spec: dict[str, Any] = msgspec.to_builtins(pod.spec)
    # The pod's scheduler honours nominations, like the default scheduler, or has nominated the pod.
    spec["schedulerName"] = ""
    return shape_of({"spec": spec}, gpu_resources=settings.allocation.gpu_resources, volumes=volumes)


def _problems(shape: PodShape, flavor_problem: str, backoff: PodBackoff | None, now: float) -> Iterator[str]:
    """Why no place can be planned for the pod."""
    if shape.unpinned_because:
        yield shape.unpinned_because
    if flavor_problem:
        yield flavor_problem
    if backoff is not None and now < backoff.until:
        yield backoff.why


def may_evict(pod: objects.Pod) -> bool:
    """Whether kube-scheduler would evict pods of priority 0 for the pod."""
    return pod.spec.preemption_policy != NEVER_PREEMPTS and (pod.spec.priority or 0) > 0


def claims_of(pod: objects.Pod) -> frozenset[str]:
    """The names of the volume claims that the pod uses."""
    sources = (volume.persistent_volume_claim for volume in pod.spec.volumes or ())
    return frozenset(source.claim_name for source in sources if source is not None)

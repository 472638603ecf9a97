"""Decides which foreign pods are served together as one gang (144)."""

from __future__ import annotations

from elastic_operator.cluster.pod import Pod

NO_GANG = "none"
"""The annotation's value for a pod that works without the other pods of its Job, as in a sweep."""
_MAX_NAME = 253
"""The longest name in Kubernetes; a longer one names no gang."""
_SERVERS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers of servers. Each of their pods works without the others."""


def may_be_split(pod: Pod) -> bool:
    """Whether a part of the pod's gang is useful: the gang is a Job with equal pods, and nothing else names the
    gang.
    """
    meta, group, owner = pod.metadata, pod.spec.scheduling_group, pod.metadata.controller
    labels = meta.labels
    named = meta.annotations.gang or group or labels.pod_group or labels.job_set or labels.leader_worker
    return owner is not None and owner.kind == "Job" and not named and not labels.completion_index


def gang_of(pod: Pod) -> str:
    """The name of the pod's gang, unique in the cluster; "" for a pod on its own.

    The first of these that the pod has gives the name: its annotation, its PodGroup (of the API server, or of
    scheduler-plugins), its JobSet, its group of a LeaderWorkerSet, its controller. A controller of servers gives none.
    """
    meta, group = pod.metadata, pod.spec.scheduling_group
    if meta.annotations.gang == NO_GANG:
        return ""
    named = {
        "gang": meta.annotations.gang,
        "PodGroup": (group.pod_group_name if group else "") or meta.labels.pod_group,
        "JobSet": meta.labels.job_set,
        "LeaderWorkerSet": meta.labels.leader_worker,
    }
    owner = meta.controller
    if owner is not None and owner.kind not in _SERVERS:
        named[owner.kind] = named.get(owner.kind) or owner.uid
    return next((f"{meta.namespace}/{kind}/{name}" for kind, name in named.items() if 0 < len(name) <= _MAX_NAME), "")

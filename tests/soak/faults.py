"""All faults of a soak: how long each lasts, whether the API server is away meanwhile, what it may cost a training."""

from __future__ import annotations

from collections.abc import Mapping

from tests.soak import faults_of_nodes as nodes
from tests.soak import faults_of_pods as pods
from tests.soak import faults_of_programs as programs
from tests.soak.plan import Kind
from tests.soak.site import SCHEDULER
from tests.soak.stage import Deeds

FAULT, SCHEDULER_KILLED = "fault", "scheduler killed"
SHORT, MEDIUM, LONG, FOR_LOSS = (2.0, 4.0), (4.0, 12.0), (18.0, 22.0), (30.0, 34.0)

FAULTS: Mapping[Kind, Deeds] = {
    Kind(FAULT, "leader killed", SHORT): programs.leader_killed,
    Kind(FAULT, "all operators killed", SHORT): programs.operators_killed,
    Kind(FAULT, "leader frozen", LONG): programs.leader_frozen,
    Kind(FAULT, "operator's pod deleted", SHORT): programs.operator_pod_deleted,
    Kind(FAULT, "operator upgraded", SHORT): programs.operator_upgraded,
    Kind(FAULT, "API server killed", MEDIUM): programs.killed("apiserver"),
    Kind(FAULT, "API server frozen", MEDIUM): programs.frozen("apiserver"),
    Kind(FAULT, "etcd killed", MEDIUM): programs.killed("etcd"),
    Kind(FAULT, "etcd frozen", MEDIUM): programs.frozen("etcd"),
    Kind(FAULT, "etcd compacted", SHORT): programs.etcd_compacted,
    Kind(FAULT, SCHEDULER_KILLED, MEDIUM): programs.killed(SCHEDULER),
    Kind(FAULT, "controller manager killed", MEDIUM): programs.killed("controller-manager"),
    Kind(FAULT, "node switched off", MEDIUM): nodes.node_killed,
    Kind(FAULT, "node switched off until pods are replaced", FOR_LOSS): nodes.node_killed,
    Kind(FAULT, "node cut off", MEDIUM): nodes.node_cut_off,
    Kind(FAULT, "node cut off until it is NotReady", LONG): nodes.node_cut_off,
    Kind(FAULT, "node cut off until pods are replaced", FOR_LOSS): nodes.node_cut_off,
    Kind(FAULT, "nodes cut from each other", MEDIUM): nodes.nodes_parted,
    Kind(FAULT, "node frozen", MEDIUM): nodes.node_frozen,
    Kind(FAULT, "node drained", MEDIUM): nodes.node_drained,
    Kind(FAULT, "disk full", LONG): nodes.disk_full,
    Kind(FAULT, "look-ups unanswered", MEDIUM): nodes.lookups_unanswered,
    Kind(FAULT, "GPU sick", MEDIUM): nodes.gpu_sick,
    Kind(FAULT, "kubelet killed", MEDIUM): nodes.part_killed("kubelet"),
    Kind(FAULT, "containerd killed", MEDIUM): nodes.part_killed("containerd"),
    Kind(FAULT, "kube-proxy killed", MEDIUM): nodes.part_killed("kube-proxy"),
    Kind(FAULT, "fake node gone", MEDIUM): nodes.fake_node_gone,
    Kind(FAULT, "fake node cordoned", MEDIUM): nodes.fake_node_cordoned,
    Kind(FAULT, "kwok frozen", MEDIUM): nodes.fake_node_not_ready,
    Kind(FAULT, "training process killed"): pods.training_process_killed,
    Kind(FAULT, "training process frozen"): pods.training_process_frozen,
    Kind(FAULT, "launcher killed"): pods.launcher_killed,
    Kind(FAULT, "worker deleted"): pods.deleted("worker"),
    Kind(FAULT, "worker deleted by force"): pods.deleted("worker", by_force=True),
    Kind(FAULT, "master deleted"): pods.deleted("master"),
    Kind(FAULT, "master deleted by force"): pods.deleted("master", by_force=True),
    Kind(FAULT, "guests take their GPUs", MEDIUM): pods.guests_come,
    Kind(FAULT, "others' pods come", MEDIUM): pods.foreigners_come,
    Kind(FAULT, "pod of a job fails"): pods.pod_fails,
    Kind(FAULT, "pod of a job deleted"): pods.pod_is_deleted,
}
"""By kind, what is done. Operators are killed seldom enough that some of their processes grow old."""

AWAY = frozenset({"API server killed", "API server frozen", "etcd killed", "etcd frozen", "etcd compacted"})
"""Meanwhile nobody can edit anything: edits wait."""

COSTLY = frozenset(
    {
        "node switched off",
        "node switched off until pods are replaced",
        "disk full",
        "node cut off",
        "node cut off until it is NotReady",
        "node cut off until pods are replaced",
        "nodes cut from each other",
        "node frozen",
        "training process killed",
        "training process frozen",
        "launcher killed",
        "worker deleted by force",
        "master deleted",
        "master deleted by force",
    }
)
"""What ends a group without notice, and so may cost a training the work since its last checkpoint."""
SETTLES_SECONDS = {
    **dict.fromkeys(AWAY, 35.0),
    **dict.fromkeys((name for name in COSTLY if name.startswith(("node cut off", "node frozen"))), 25.0),
}
"""So long after its end who leads may still know nothing: watches are tried again after up to half a minute."""

TAIL_SECONDS = 45.0
"""So long after its end such a fault may still cost something: pods that come back end a group, too."""

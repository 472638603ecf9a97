"""All faults of a soak: how long each lasts, whether the API server is away meanwhile, what it may cost a training."""

from __future__ import annotations

import signal
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
    Kind(FAULT, "API server killed", MEDIUM, away=True): programs.killed("apiserver"),
    Kind(FAULT, "API server frozen", MEDIUM, away=True): programs.frozen("apiserver"),
    Kind(FAULT, "etcd killed", MEDIUM, away=True): programs.killed("etcd"),
    Kind(FAULT, "etcd frozen", MEDIUM, away=True): programs.frozen("etcd"),
    Kind(FAULT, "etcd compacted", SHORT, away=True): programs.etcd_compacted,
    Kind(FAULT, SCHEDULER_KILLED, MEDIUM): programs.killed(SCHEDULER),
    Kind(FAULT, "controller manager killed", MEDIUM): programs.killed("controller-manager"),
    Kind(FAULT, "node switched off", MEDIUM, costly=True): nodes.node_killed,
    Kind(FAULT, "node switched off until pods are replaced", FOR_LOSS, costly=True): nodes.node_killed,
    Kind(FAULT, "node cut off", MEDIUM, costly=True): nodes.node_cut_off,
    Kind(FAULT, "node cut off until it is NotReady", LONG, costly=True): nodes.node_cut_off,
    Kind(FAULT, "node cut off until pods are replaced", FOR_LOSS, costly=True): nodes.node_cut_off,
    Kind(FAULT, "nodes cut from each other", MEDIUM, costly=True): nodes.nodes_parted,
    Kind(FAULT, "node frozen", MEDIUM, costly=True): nodes.node_frozen,
    Kind(FAULT, "node drained", MEDIUM): nodes.node_drained,
    Kind(FAULT, "disk full", LONG, costly=True): nodes.disk_full,
    Kind(FAULT, "look-ups unanswered", MEDIUM): nodes.lookups_unanswered,
    Kind(FAULT, "GPU sick", MEDIUM): nodes.gpu_sick,
    Kind(FAULT, "kubelet killed", MEDIUM): nodes.part_killed("kubelet"),
    Kind(FAULT, "containerd killed", MEDIUM): nodes.part_killed("containerd"),
    Kind(FAULT, "kube-proxy killed", MEDIUM): nodes.part_killed("kube-proxy"),
    Kind(FAULT, "fake node gone", MEDIUM): nodes.fake_node_gone,
    Kind(FAULT, "fake node cordoned", MEDIUM): nodes.fake_node_cordoned,
    Kind(FAULT, "kwok frozen", MEDIUM): programs.frozen("kwok"),
    Kind(FAULT, "training process killed", costly=True): pods.training_process("killed", signal.SIGKILL),
    Kind(FAULT, "training process frozen", costly=True): pods.training_process("frozen", signal.SIGSTOP),
    Kind(FAULT, "launcher killed", costly=True): pods.launcher_killed,
    Kind(FAULT, "worker deleted"): pods.deleted("worker"),
    Kind(FAULT, "worker deleted by force", costly=True): pods.deleted("worker", by_force=True),
    Kind(FAULT, "master deleted", costly=True): pods.deleted("master"),
    Kind(FAULT, "master deleted by force", costly=True): pods.deleted("master", by_force=True),
    Kind(FAULT, "guests take their GPUs", MEDIUM): pods.guests_come,
    Kind(FAULT, "others' pods come", MEDIUM): pods.foreigners_come,
    Kind(FAULT, "pod of a job fails"): pods.pod_fails,
    Kind(FAULT, "pod of a job deleted"): pods.pod_is_deleted,
}
"""By kind, what is done. Operators are killed seldom enough that some of their processes grow old."""

AWAY = frozenset(kind.name for kind in FAULTS if kind.away)
COSTLY = frozenset(kind.name for kind in FAULTS if kind.costly)
SETTLES_SECONDS = {
    **dict.fromkeys(AWAY, 35.0),
    **dict.fromkeys((name for name in COSTLY if name.startswith(("node cut off", "node frozen"))), 25.0),
}
"""So long after its end who leads may still know nothing: watches are tried again after up to half a minute."""

TAIL_SECONDS = 45.0
"""So long after its end such a fault may still cost something: pods that come back end a group, too."""

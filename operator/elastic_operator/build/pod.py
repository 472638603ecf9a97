"""One pod of a job, made from the user's pod template with metadata, place, environment and first process added.

Everything else of the template's spec stays as it is, including what this operator does not know. Parsing has accepted
the template; the API server decides whether it accepts the pod.
"""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.launch_line import as_run
from elastic_api.ports import declared_ports
from elastic_api.template import fingerprint, main_container
from elastic_operator.build import elastic_pod
from elastic_operator.build.names import Owner, owner_reference
from elastic_operator.build.request import BuildSettings
from elastic_operator.build.torchrun_environment import environment, grace_seconds, merge_env
from elastic_operator.build.wrapper import wrapped
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.pod_shape import with_node_name
from elastic_worker import contract
from elastic_worker.contract import ROLE_MASTER

SHM_VOLUME = "elastic-shm"
SHM_PATH = "/dev/shm"
"""Where processes share memory, for instance with the workers of a data loader."""


def build_pod(
    job: Owner,
    spec: JobSpec,
    new: NewPods,
    slot: Slot,
    *,
    service_ip: str,
    port: int,
    settings: BuildSettings,
) -> dict[str, Any]:
    """The pod of `job` for that slot, ready to be sent; `service_ip` and `port` are those of the job's Service."""
    template = copy.deepcopy(spec.template_of(slot.role))
    pod: dict[str, Any] = template["spec"]
    pod["restartPolicy"] = "Never"
    pod.setdefault("enableServiceLinks", False)
    pod["terminationGracePeriodSeconds"] = grace_seconds(spec)
    _prioritise(pod, new, slot, settings)
    if slot.node is not None:
        _pin(pod, slot.node)
    main = main_container(template)
    main.update(as_run(main, spec))
    main["env"] = main.get("env") or []
    # torchrun's summary (rank, exit code) is the end of the log; it fits into the message that the kubelet puts into
    # the status.
    main.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    _add_shared_memory(pod, main)
    _declare(main, declared_ports(port, slot.role, is_elastic=spec.is_elastic))
    if spec.is_elastic:
        elastic_pod.make_elastic(pod, main, job, spec, new, slot, service_ip=service_ip, port=port, settings=settings)
    else:
        ours = environment(job, spec, new, slot, service_ip=service_ip, port=port, settings=settings)
        main["env"] = merge_env(ours, main["env"])
        main.update(wrapped(main))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(job, spec, new, slot, users=template.get("metadata") or {}),
        "spec": pod,
    }


def _metadata(job: Owner, spec: JobSpec, new: NewPods, slot: Slot, *, users: Mapping[str, Any]) -> dict[str, Any]:
    labels = {
        contract.LABEL_JOB_NAME: job.name,
        contract.LABEL_JOB_UID: job.uid,
        contract.LABEL_ROLE: slot.role,
        contract.LABEL_INDEX: str(slot.index),
        contract.LABEL_INCARNATION: str(new.incarnation),
        contract.LABEL_KUBEFLOW_ROLE: slot.role,
    }
    annotations = {
        contract.ANNOTATION_CONTRACT: contract.VERSION,
        # Elastic jobs take any size, so there is nothing to compare sizes with later.
        **({} if spec.is_elastic else {contract.ANNOTATION_NNODES: "{}:{}".format(*new.nnodes)}),
        contract.ANNOTATION_TEMPLATE: fingerprint(spec, slot.role),
        **(elastic_pod.own_annotations(job, new, slot) if spec.is_elastic else {}),
    }
    return {
        "name": slot.pod_name(job.name),
        "namespace": job.namespace,
        "labels": {**(users.get("labels") or {}), **labels},
        "annotations": {**(users.get("annotations") or {}), **annotations},
        "ownerReferences": [owner_reference(job)],
    }


def _prioritise(pod: dict[str, Any], new: NewPods, slot: Slot, settings: BuildSettings) -> None:
    """Give the pod the operator's class, unless the template's counts."""
    if new.own_class:
        for field in ("priorityClassName", "priority", "preemptionPolicy"):
            pod.pop(field, None)
    ours = settings.master_priority_class if slot.role == ROLE_MASTER else settings.worker_priority_class
    if ours and not pod.get("priorityClassName") and pod.get("priority") is None:
        pod["priorityClassName"] = ours


def _pin(pod: dict[str, Any], node: str) -> None:
    """Require `node` in the template's node affinity (10)."""
    affinity = pod["affinity"] = pod.get("affinity") or {}
    node_affinity = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    required = node_affinity[key] = node_affinity.get(key) or {}
    required["nodeSelectorTerms"] = with_node_name(required.get("nodeSelectorTerms") or (), node)


def _declare(main: dict[str, Any], ports: Sequence[int]) -> None:
    """Declare ports of the node: kube-scheduler puts no two pods with the same one on a node."""
    declared = main.get("ports") or []
    numbers = {port.get("containerPort") for port in declared}
    if ours := [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in ports if port not in numbers]:
        main["ports"] = [*declared, *ours]


def _add_shared_memory(pod: dict[str, Any], main: dict[str, Any]) -> None:
    """Memory for data loaders' workers; container runtimes give 64 MiB."""
    mounts = main.get("volumeMounts") or []
    if any(posixpath.normpath(mount["mountPath"]) == SHM_PATH for mount in mounts):
        return
    main["volumeMounts"] = [*mounts, {"name": SHM_VOLUME, "mountPath": SHM_PATH}]
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory"}}]

"""The parts of a pod that only Elastic jobs have: the launcher, its orders, the master's file with the membership, and
the Secret by which the pods know each other.

An init container copies the launcher into a volume, so that images need not contain it. The master finds the membership
in a file that the kubelet keeps equal to the pod's annotation. It is mounted as a folder, because the kubelet does not
renew single files (subPath).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elastic_api.elastic import MEMBERSHIP_VOLUME, RUNTIME_VOLUME, SCRATCH_FOLDER, SCRATCH_VOLUME, injector
from elastic_api.job import JobSpec
from elastic_api.ports import status_port
from elastic_api.template import nproc_of
from elastic_operator.build.launch import launched
from elastic_operator.build.names import Owner, owned_metadata, rendezvous_id, secret_name
from elastic_operator.build.request import BuildSettings
from elastic_operator.build.torchrun_environment import (
    as_env,
    endpoint,
    from_field,
    grace_seconds,
    merge_env,
    of_any_mode,
)
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_worker import contract
from elastic_worker.contract import INJECT_FOLDER, MEMBERSHIP_FILE, MEMBERSHIP_FOLDER, ROLE_MASTER

RUNTIME_SIZE = "16Mi"
"""The size limit of the launcher's volume; the launcher takes a fraction of it."""
SCRATCH_VARIABLES = ("TMPDIR", "HOME", "TORCHINDUCTOR_CACHE_DIR")
"""Variables for folders in which programs write by default."""


def make_elastic(
    pod: dict[str, Any],
    main: dict[str, Any],
    job: Owner,
    spec: JobSpec,
    new: NewPods,
    slot: Slot,
    *,
    service_ip: str,
    port: int,
    settings: BuildSettings,
) -> None:
    """Turn the spec `pod`, whose main container is `main`, into that of an Elastic job's pod for that slot."""
    ours = environment(job, spec, new, slot, service_ip=service_ip, port=port, settings=settings)
    if (main.get("securityContext") or {}).get("readOnlyRootFilesystem"):
        _mount(pod, main, SCRATCH_VOLUME, SCRATCH_FOLDER, {"emptyDir": {}}, read_only=False)
        ours += [{"name": name, "value": SCRATCH_FOLDER} for name in SCRATCH_VARIABLES]
    if spec.runtime.inject:
        _mount(pod, main, RUNTIME_VOLUME, INJECT_FOLDER, {"emptyDir": {"sizeLimit": RUNTIME_SIZE}})
        pod["initContainers"] = [injector(settings.worker_image), *(pod.get("initContainers") or [])]
        _add_pull_secrets(pod, settings.worker_pull_secrets)
    if slot.role == ROLE_MASTER:
        membership = from_field(f"metadata.annotations['{contract.ANNOTATION_MEMBERSHIP}']")
        source = {"downwardAPI": {"items": [{"path": MEMBERSHIP_FILE, **membership}]}}
        _mount(pod, main, MEMBERSHIP_VOLUME, MEMBERSHIP_FOLDER, source)
    main["env"] = merge_env(ours, main["env"])
    main.update(launched(main, spec.runtime))


def _add_pull_secrets(pod: dict[str, Any], names: Sequence[str]) -> None:
    """Add the pull secrets after the user's: the kubelet tries them in this order for each image."""
    users = pod.get("imagePullSecrets") or []
    known = {secret.get("name") for secret in users}
    if added := [{"name": name} for name in dict.fromkeys(names) if name not in known]:
        pod["imagePullSecrets"] = [*users, *added]


def environment(
    job: Owner, spec: JobSpec, new: NewPods, slot: Slot, *, service_ip: str, port: int, settings: BuildSettings
) -> list[dict[str, Any]]:
    """The variables for the pod's main container, as a container's `env`."""
    values = {
        **_rendezvous(job, spec, new, service_ip=service_ip, port=port),
        **of_any_mode(job, new, slot),
        contract.ENV_POD_NAME: slot.pod_name(job.name),
        contract.ENV_MASTER_EPOCH: new.master_epoch,
        **_orders(spec, nproc=nproc_of(spec, slot.role, settings.gpu_resources)),
        contract.ENV_STATUS_PORT: status_port(port, slot.role),
    }
    if slot.role == ROLE_MASTER:
        values[contract.ENV_MEMBERSHIP_FILE] = f"{MEMBERSHIP_FOLDER}/{MEMBERSHIP_FILE}"
    token = {"secretKeyRef": {"name": secret_name(job.name, job.uid, old=new.old_secret), "key": contract.SECRET_KEY}}
    return as_env(
        values,
        {"name": contract.ENV_POD_UID, "valueFrom": from_field("metadata.uid")},
        {"name": contract.ENV_TOKEN, "valueFrom": token},
    )


def build_secret(job: Owner, *, token: str, old: bool) -> dict[str, Any]:
    """The Secret called `secret_name`. A pod that cannot read it cannot take part. It never changes, because pods that
    are created later must know the earlier ones.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owned_metadata(job, secret_name(job.name, job.uid, old=old)),
        "type": "Opaque",
        "immutable": True,
        "stringData": {contract.SECRET_KEY: token},
    }


def own_annotations(job: Owner, new: NewPods, slot: Slot) -> dict[str, str]:
    """The annotations that the pod has beside those of every pod."""
    ours = {contract.ANNOTATION_SECRET: secret_name(job.name, job.uid, old=new.old_secret)}
    if slot.role == ROLE_MASTER:
        ours[contract.ANNOTATION_MASTER_EPOCH] = str(new.master_epoch)
        ours[contract.ANNOTATION_MEMBERSHIP] = new.membership
    return ours


def _rendezvous(job: Owner, spec: JobSpec, new: NewPods, *, service_ip: str, port: int) -> dict[str, object]:
    """Variables for a launch script. Our own torchrun gets them as its flags, and takes only the script from them."""
    fewest, most = new.nnodes
    return {
        contract.ENV_MASTER_ADDR: service_ip,
        contract.ENV_MASTER_PORT: port,
        contract.ENV_WORLD_SIZE: spec.max_replicas,
        contract.ENV_NNODES: f"{fewest}:{most}",
        contract.ENV_RDZV_BACKEND: contract.ELASTIC_BACKEND,
        contract.ENV_RDZV_ENDPOINT: endpoint(service_ip, port),
        contract.ENV_RDZV_ID: rendezvous_id(job.uid, new.incarnation),
    }


def _orders(spec: JobSpec, *, nproc: int) -> dict[str, object]:
    """The launcher's orders from the user's spec."""
    return {
        contract.ENV_NPROC_PER_NODE: nproc,
        contract.ENV_NPROC: nproc,
        contract.ENV_PRELOAD: ",".join(spec.runtime.preload),
        contract.ENV_CHECKPOINT_PATH: spec.elasticity.checkpoint_path,
        contract.ENV_CHECKPOINT_COMPLETE: spec.elasticity.checkpoint_complete,
        contract.ENV_CHECKPOINT_SIGNAL: spec.elasticity.checkpoint_signal,
        contract.ENV_ALIGN_SECONDS: spec.elasticity.align_timeout_seconds,
        contract.ENV_GRACE_SECONDS: grace_seconds(spec),
        contract.ENV_STALL_SECONDS: spec.recovery.stall_seconds,
        contract.ENV_MAX_FAILURES: spec.recovery.max_failures_without_progress,
        contract.ENV_FINAL_EXIT_CODES: ",".join(map(str, spec.recovery.final_exit_codes)),
    }


def _mount(
    pod: dict[str, Any],
    main: dict[str, Any],
    name: str,
    folder: str,
    source: dict[str, Any],
    *,
    read_only: bool = True,
) -> None:
    mount: dict[str, Any] = {"name": name, "mountPath": folder}
    main["volumeMounts"] = [*(main.get("volumeMounts") or []), mount | ({"readOnly": True} if read_only else {})]
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": name, **source}]

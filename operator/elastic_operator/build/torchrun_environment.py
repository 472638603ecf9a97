"""The environment of a Torchrun pod's main container: variables for torchrun, and variables for launch scripts.

A plain `torchrun script.py` takes all of it from PET_* variables; scripts written for fixed sizes find MASTER_ADDR,
MASTER_PORT and WORLD_SIZE. Training processes see none of those three: each agent sets its own, MASTER_ADDR to the
PET_LOCAL_ADDR of the pod with rank 0 and MASTER_PORT to a free port there, so that only the rendezvous goes through the
Service (`RendezvousStoreInfo.build` in torch/distributed/elastic/rendezvous/api.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastic_api import torchrun
from elastic_api.job import MAX_REPLICAS, JobSpec
from elastic_api.template import nproc_of
from elastic_operator.build.names import Owner, rendezvous_id
from elastic_operator.build.request import BuildSettings
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_worker import contract
from elastic_worker.contract import ROLE_MASTER

SHUTDOWN_MARGIN_SECONDS = 5
"""The part of the grace period in which an agent ends and reports, after it has killed processes that did not stop."""
JOIN_TIMEOUT_SECONDS = 30 * 86_400
"""How long agents wait for enough others. The operator decides how long pods may wait; an agent that gave up would
count as a failure.
"""
KEEP_ALIVE_SECONDS = 1
KEEP_ALIVE_ATTEMPTS = 6
"""The other agents give up an agent for good after a silence of interval times attempts. If that agent lives, later
pods never meet its group. Each pod that leaves costs the others this time, so it is short (30).
"""
LAST_CALL_SECONDS = 1
"""The least that torch accepts. The operator decides which pods take part, so nothing is gained by waiting for more."""


def grace_seconds(spec: JobSpec) -> int:
    """The pods' grace period. Zero would make deletions take effect before the processes have ended."""
    return max(1, spec.elasticity.grace_period_seconds)


def environment(
    job: Owner, spec: JobSpec, new: NewPods, slot: Slot, *, service_ip: str, port: int, settings: BuildSettings
) -> list[dict[str, Any]]:
    """The variables for the pod's main container, as a container's `env`."""
    fewest, most = new.nnodes
    values = {
        **torchrun.variables(
            address=service_ip,
            port=str(port),
            world_size=str(spec.max_replicas if most == MAX_REPLICAS else most),
            nnodes=f"{fewest}:{most}",
            nproc=str(nproc_of(spec, slot.role, settings.gpu_resources)),
            endpoint=endpoint(service_ip, port),
            run_id=rendezvous_id(job.uid, new.incarnation),
            conf=_rendezvous_conf(spec, is_host=slot.role == ROLE_MASTER),
        ),
        contract.ENV_SHUTDOWN_TIMEOUT: max(1, grace_seconds(spec) - SHUTDOWN_MARGIN_SECONDS),
        # With the shared store, a pod that joins or a lost rank 0 ends the whole group (torch 2.13 to 2.15).
        contract.ENV_NO_SHARED_STORE: 1,
        **of_any_mode(job, new, slot),
        contract.ENV_POD_RANK: 0 if slot.role == ROLE_MASTER else slot.index + 1,
    }
    return as_env(values)


def of_any_mode(job: Owner, new: NewPods, slot: Slot) -> dict[str, object]:
    """The variables that a pod has in both modes, beside those of the rendezvous."""
    return {
        contract.ENV_UNBUFFERED: 1,
        contract.ENV_JOB_NAME: job.name,
        contract.ENV_JOB_UID: job.uid,
        contract.ENV_ROLE: slot.role,
        contract.ENV_INDEX: slot.index,
        contract.ENV_INCARNATION: new.incarnation,
    }


def as_env(values: Mapping[str, object], *others: dict[str, Any]) -> list[dict[str, Any]]:
    """A container's `env` with these values and `others`, and with the pod's address: host names of pods do not resolve
    in other pods.
    """
    pod_ip = {"name": contract.ENV_LOCAL_ADDR, "valueFrom": from_field("status.podIP")}
    return [pod_ip, *others, *({"name": name, "value": str(value)} for name, value in values.items())]


def from_field(path: str) -> dict[str, Any]:
    """The value of a field of the pod, by the downward API."""
    return {"fieldRef": {"fieldPath": path}}


def endpoint(service_ip: str, port: int) -> str:
    """Where the pods of a job meet, as `ADDRESS:PORT`."""
    host = f"[{service_ip}]" if ":" in service_ip else service_ip
    return f"{host}:{port}"


def merge_env(ours: Iterable[dict[str, Any]], users: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Both environments as one; the user's variable replaces ours with the same name.

    Ours come first, so that the user's values can refer to them as `$(NAME)`.
    """
    set_by_user = {variable["name"] for variable in users}
    return [variable for variable in ours if variable["name"] not in set_by_user] + list(users)


def _rendezvous_conf(spec: JobSpec, *, is_host: bool) -> str:
    options = {
        # torch compares the endpoint with the pod's own addresses; a ClusterIP is nobody's, so nobody would host.
        "is_host": "true" if is_host else "false",
        "last_call_timeout": LAST_CALL_SECONDS,
        "keep_alive_interval": KEEP_ALIVE_SECONDS,
        "keep_alive_max_attempt": KEEP_ALIVE_ATTEMPTS,
        "join_timeout": JOIN_TIMEOUT_SECONDS,
        # Also bounds the first connection: workers may run long before the master's image is there.
        "read_timeout": spec.recovery.master_loss_timeout_seconds,
    }
    return ",".join(f"{name}={value}" for name, value in options.items())

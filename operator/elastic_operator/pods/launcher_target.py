"""Decides which master the operator asks for its group's state, and how often. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_api.job import JobSpec
from elastic_api.ports import master_port, status_port
from elastic_api.status import ConditionType, JobStatus, Phase
from elastic_operator.plan.facts.decisions import Plan
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.job.master_report import awaits_first_report
from elastic_operator.plan.job.observation import Observation, is_running, master_of
from elastic_worker.contract import ROLE_MASTER, STATUS_PORT

COST_SECONDS = 60.0
"""After a change, the master is asked often for this long about the cost of the change."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running master: its address, and the identity that its answers must have. `fast`: its job changes."""

    namespace: str
    job_name: str
    master_uid: str
    address: str
    master_epoch: int
    fast: bool = False
    port: int = STATUS_PORT


def target_of(obs: Observation, plan: Plan, now: float) -> Target | None:
    """The job's running master; `fast` if the plan shows that the job changes or that a node may be lost."""
    spec, master = obs.job.spec, master_of(obs)
    if spec is None or not spec.is_elastic or master is None or not is_running(master) or not master.pod_ip:
        return None
    if plan.status.finished:
        return None
    return Target(
        namespace=obs.job.namespace,
        job_name=obs.job.name,
        master_uid=master.uid,
        address=master.pod_ip,
        master_epoch=master.master_epoch or 0,
        port=_status_port(obs.job.uid, spec, master),
        fast=awaits_first_report(obs, now) or bool(obs.unready_nodes) or _is_changing(plan.status, now),
    )


def _status_port(uid: str, spec: JobSpec, master: OwnPod) -> int:
    """The job's own port if its master declares one; a master of an older release uses the fixed port (122)."""
    own = status_port(master_port(uid, spec), ROLE_MASTER)
    return own if ("", "TCP", own) in master.host_ports else STATUS_PORT


def _is_changing(status: JobStatus, now: float) -> bool:
    """Whether the group is not yet complete, or the cost of the last change is not known yet."""
    ready = status.condition(ConditionType.READY)
    if ready is None or ready.reason not in (Phase.RUNNING, Phase.DEGRADED):
        return True
    latest = next((change for change in status.history if change.from_ > 0 and change.to > 0), None)
    if latest is None or latest.pause_seconds is not None:
        return False
    return now - seconds(latest.time) < COST_SECONDS

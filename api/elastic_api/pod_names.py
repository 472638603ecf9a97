"""Names of a job's pods: made by the operator, and read by it and by clients.

They are deterministic. So a repeated create is refused instead of making a second pod, and a restarted operator
recognises the objects of its predecessor (8).
"""

from __future__ import annotations

import re

from elastic_api.job import MAX_REPLICAS
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

_ROLE_AND_INDEX = re.compile(r"-(?:(master)-(0)|(worker)-(0|[1-9][0-9]{0,3}))")


def pod_name(job_name: str, role: str, index: int) -> str:
    """`NAME-master-0` or `NAME-worker-K`; `role` is "master" or "worker"."""
    return f"{job_name}-{role}-{index}"


def parse_pod_name(job_name: str, name: str) -> tuple[str, int] | None:
    """Role and index of the pod of job `job_name` called `name`; None for every name that `pod_name` does not make."""
    match = _ROLE_AND_INDEX.fullmatch(name.removeprefix(job_name)) if name.startswith(job_name) else None
    if match is None:
        return None
    role, index = (ROLE_MASTER, 0) if match[1] else (ROLE_WORKER, int(match[4]))
    return (role, index) if index < MAX_REPLICAS else None

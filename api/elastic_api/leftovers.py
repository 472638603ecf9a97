"""Objects that a job deleted without its pods (`kubectl delete --cascade=orphan`) leaves behind (82).

They block the next job of that name. They have no owner, nothing removes them, and the pods among them hold GPUs.
"""

from __future__ import annotations

from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID

KINDS = "pods,services,endpointslices,secrets,networkpolicies"


def removal(namespace: str, name: str, uid: str) -> str:
    """The command that deletes the leftovers of jobs of that name, and nothing of the job with that uid."""
    return f"kubectl -n {namespace} delete {KINDS} -l '{LABEL_JOB_NAME}={name},{LABEL_JOB_UID}!={uid}'"

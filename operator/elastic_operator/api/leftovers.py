"""What a job that was deleted without its pods (`kubectl delete --cascade=orphan`) leaves in the way of the next one of
its name: nobody owns it, nothing takes it away, and the pods among it hold GPUs.
"""

from __future__ import annotations

from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID

KINDS = "pods,services,endpointslices,secrets,networkpolicies"


def removal(namespace: str, name: str, uid: str) -> str:
    """The command that deletes what jobs of that name left behind, and nothing of the job with that uid."""
    return f"kubectl -n {namespace} delete {KINDS} -l '{LABEL_JOB_NAME}={name},{LABEL_JOB_UID}!={uid}'"

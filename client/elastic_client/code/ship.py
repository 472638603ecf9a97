"""Creates a job, and before it the ConfigMap with its code if there is one; then makes the job an owner of it.

Several jobs may share a ConfigMap, and Kubernetes' garbage collector deletes it with the last of them. A job must exist
before it can own an object, so the ConfigMap may be deleted meanwhile with another job. Then it is created again, with
its owner; pods that started earlier wait for it, since kubelets retry a mount. A ConfigMap that was applied by hand
gets no owner, because jobs that were applied with it would lose it with the owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elastic_client import screen
from elastic_client.cluster import STRATEGIC_PATCH, Cluster, Object
from elastic_client.exits import ClientError
from elastic_client.exits import Code as Exit
from elastic_client.jobs import jobs_path

if TYPE_CHECKING:
    from elastic_client.code.folder import Code

ATTEMPTS = 3
ANSWERS = (Exit.REFUSED, Exit.NOT_ALLOWED, Exit.NOT_FOUND, Exit.NOT_INSTALLED)
"""Exit codes after which the job certainly does not exist."""


async def create(cluster: Cluster, manifest: Mapping[str, Any], code: Code | None = None) -> Object:
    """The job that was created. Raises ClientError, REFUSED if a field is wrong or the name is in use."""
    if code is None:
        return await _create_job(cluster, manifest)
    # This imports the models of pods, for which `list` need not wait.
    from elastic_client.code.objects import config_map, is_applied

    body = config_map(code)
    there, is_new = await _ensure(cluster, body)
    try:
        job = await _create_job(cluster, manifest)
    except ClientError as error:
        if is_new and error.code in ANSWERS:
            await _take_back(cluster, there)
        raise
    if not is_applied(there):
        await _give_to(cluster, body, job)
    return job


async def _create_job(cluster: Cluster, manifest: Mapping[str, Any]) -> Object:
    return await cluster.post(jobs_path(cluster.namespace), manifest, fieldValidation="Strict")


def _path(cluster: Cluster, name: str = "") -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/configmaps{name and f'/{name}'}"


async def _ensure(cluster: Cluster, body: Object) -> tuple[Object, bool]:
    """The ConfigMap, and whether it had to be created. Raises ClientError if another one has its name."""
    try:
        return await cluster.post(_path(cluster), body), True
    except ClientError as error:
        if "already exists" not in str(error):
            raise
    name = body["metadata"]["name"]
    there = await cluster.get(_path(cluster, name))
    if there.get("binaryData") != body["binaryData"] or there.get("data") or there.get("immutable") is not True:
        message = (
            f"ConfigMap {name}: namespace {cluster.namespace} has one of that name with other contents: delete it by"
        )
        raise ClientError(Exit.REFUSED, f"{message} `kubectl -n {cluster.namespace} delete configmap {name}`")
    return there, False


async def _take_back(cluster: Cluster, made: Object) -> None:
    """Delete the ConfigMap of a refused job, unless another job already uses it."""
    identity = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    try:
        await cluster.delete(_path(cluster, made["metadata"]["name"]), preconditions=identity)
    except ClientError as error:
        if error.code not in ANSWERS:
            raise


async def _give_to(cluster: Cluster, body: Object, job: Object) -> None:
    """Make the job one of the ConfigMap's owners. If that is forbidden, the ConfigMap stays, and the user is warned."""
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    name = body["metadata"]["name"]
    owned = {"metadata": {"ownerReferences": [owner]}}
    error = None
    for _ in range(ATTEMPTS):
        try:
            # The patch merges by uid, so jobs that begin at the same time do not overwrite each other.
            await cluster.patch(_path(cluster, name), owned, kind=STRATEGIC_PATCH)
        except ClientError as refused:
            if refused.code != Exit.NOT_FOUND:
                error = refused
                break
            await _ensure(cluster, {**body, "metadata": {**body["metadata"], **owned["metadata"]}})
        else:
            return
    message = error or "other jobs that had it were deleted"
    screen.note(f"note: the ConfigMap {name} will not be deleted with the job: {message}")

"""Requests about pods: each conditional, as in `api_requests`, and the reads of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from elastic_operator.cluster.api_requests import delete, delete_options, has_version, path_of, post, require_ours
from elastic_operator.cluster.errors import AlreadyExists, BadRequest, ClusterError, Forbidden, NameTaken, NotFound
from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.objects import Pod, decode
from elastic_operator.cluster.session import STRATEGIC_MERGE_PATCH, Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.write_queue import Urgency
from elastic_worker.contract import LABEL_INCARNATION

_STRICT = {"fieldValidation": "Strict"}
_LOG_BYTES = 1 << 18
"""The API server cuts a long log at its end, which we need. So we ask for more, and cut it here at the front."""
LONG_LOG_BYTES = 1 << 21
"""The most bytes of a log from a point in time on. A longer log is not used, because the missing part might matter."""


async def create_pod(session: Session, manifest: Mapping[str, Any]) -> Pod:
    """Create a pod, or find it created.

    Raises:
        NameTaken: the name belongs to a pod of others, or to one of ours that is still being deleted.
        BadRequest, Invalid, Forbidden: the API server refuses the manifest; unknown fields are refused, too.
        Forbidden, too: a mutating webhook changes the label of the incarnation.
        ClusterError: anything else.
    """
    changed = None
    try:
        answer = await post(session, "pods", manifest, params=_STRICT)
        changed = _changed_incarnation(answer, manifest)
    except AlreadyExists:
        try:
            answer = await session.get(path_of(manifest, "pods"))
        except NotFound as error:
            raise NameTaken(f"Pod {manifest['metadata']['name']} was only just deleted.") from error
    pod = decode(answer, Pod)
    if changed:
        # It would count as a pod of another incarnation, and the operator would replace it forever.
        try:
            await delete_pod(session, pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid, grace_seconds=0)
        except ClusterError as error:  # the next pass deletes it
            raise changed from error
        raise changed
    require_ours(pod.metadata, manifest)
    return pod


async def try_pod(session: Session, manifest: Mapping[str, Any]) -> None:
    """Ask by a dry run whether a pod would be accepted (139). Raises like `create_pod`, except for names in use.

    An old webhook that does not support dry runs counts as no answer.
    """
    try:
        answer = await post(session, "pods", manifest, params={**_STRICT, "dryRun": "All"})
    except AlreadyExists:
        return
    except BadRequest as error:
        if "does not support dry run" not in error.message:
            raise
    else:
        if changed := _changed_incarnation(answer, manifest):
            raise changed


def _changed_incarnation(answer: Mapping[str, Any], manifest: Mapping[str, Any]) -> Forbidden | None:
    """The refusal of a new pod whose label of the incarnation a mutating webhook changes; None if it does not."""
    found, wanted = ((pod["metadata"].get("labels") or {}).get(LABEL_INCARNATION, "") for pod in (answer, manifest))
    if found == wanted:
        return None
    how = f"gets {found!r} in place of {wanted!r} in its label {LABEL_INCARNATION}"
    return Forbidden(f"pod {manifest['metadata']['name']} {how}: a mutating webhook changes it", status=403)


async def delete_pod(
    session: Session, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
) -> Pod | None:
    """Delete exactly that pod; None if it does not exist any more. `grace_seconds` overrides its own; 0: by force.

    The API server answers with the pod even if the pod is removed at once: without a node, or without grace. If another
    deletion was a moment faster, the answer is a status, or a pod without a version.
    """
    options = delete_options(uid) | ({} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds})
    answer = await delete(session, _pod(namespace, name), options)
    if answer is None or not has_version(answer):
        return None
    pod = decode(answer, Pod)
    gone = pod.metadata.deletion_grace_period_seconds == 0 and not pod.metadata.finalizers
    return None if gone else pod


async def annotate_pod(
    session: Session, namespace: str, name: str, *, uid: str, resource_version: str, annotations: Mapping[str, str]
) -> Pod:
    """Set these annotations of exactly that pod, if it still has that resourceVersion. Raises Conflict if the pod has
    changed, or another pod has its name now; NotFound, ClusterError.
    """
    body = {"metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": annotations}}
    return decode(await session.patch(_pod(namespace, name), body), Pod)


async def pod_now(session: Session, pods: Store[Pod], meta: Meta) -> Pod | None:
    """The pod as it is now, put into the store; None if it is deleted. Raises ClusterError."""
    with suppress(NotFound):
        pod = decode(await session.get(_pod(meta.namespace, meta.name)), Pod)
        if pod.metadata.uid == meta.uid:
            pods.observe(pod)
            return pod
    pods.observe_deleted(meta.uid)
    return None


async def nominate_pod(session: Session, pod: Pod, node: str, condition: Mapping[str, str], *, urgency: Urgency) -> Pod:
    """Nominate exactly that pod for the node ("": for none), and set the condition. Raises like `annotate_pod`."""
    meta = pod.metadata
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"nominatedNodeName": node or None, "conditions": [condition]},
    }
    path = f"{_pod(meta.namespace, meta.name)}/status"
    return decode(await session.patch(path, body, content_type=STRATEGIC_MERGE_PATCH, urgency=urgency), Pod)


async def read_log_tail(
    session: Session, namespace: str, pod: str, container: str, *, lines: int, max_bytes: int
) -> str:
    """The end of a container's log, limited in lines and bytes. Raises ClusterError if there is none."""
    params = {"container": container, "tailLines": str(lines), "limitBytes": str(_LOG_BYTES)}
    log = await session.get_bytes(f"{_pod(namespace, pod)}/log", params=params)
    return log[-max_bytes:].decode(errors="replace")


async def read_log_since(session: Session, namespace: str, pod: str, container: str, *, seconds: int) -> str:
    """A container's log of the last seconds, by its node's clock.

    Raises ClusterError if there is no log, ValueError if it is longer than `LONG_LOG_BYTES`.
    """
    params = {"container": container, "sinceSeconds": str(seconds), "limitBytes": str(LONG_LOG_BYTES)}
    log = await session.get_bytes(f"{_pod(namespace, pod)}/log", params=params)
    if len(log) >= LONG_LOG_BYTES:
        raise ValueError(f"more than {LONG_LOG_BYTES} bytes in {seconds} s")
    return log.decode(errors="replace")


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"

"""Requests to the API server: conditional writes, and the reads beside them. No server-side apply.

Each write is conditional, so one that is late, repeated, or made from old facts does no harm. A manifest names the job
whose object it describes as its owner; an object of that name with another owner is left alone (`NameTaken`).

A create has a deterministic name (8) and succeeds if our object exists. A delete names a uid and succeeds if that
object does not exist any more. A change names a resourceVersion: of what it was decided on, or for a job's status the
newest known one, because the operator is the only writer of that status. The API server's answer is returned, for the
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from elastic_api.job import API_VERSION, PLURAL
from elastic_api.leftovers import removal
from elastic_api.policy import COLLECTION
from elastic_operator.cluster.errors import (
    AlreadyExists,
    BadRequest,
    ClusterError,
    Conflict,
    Forbidden,
    NameTaken,
    NotFound,
    UnversionedConflict,
)
from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.objects import CustomObject, EndpointSlice, Pod, Service, decode
from elastic_operator.cluster.session import STRATEGIC_MERGE_PATCH, Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.write_queue import Urgency
from elastic_worker.contract import LABEL_INCARNATION, LABEL_JOB_NAME

T = TypeVar("T", Service, EndpointSlice, CustomObject)

_LOG_BYTES = 1 << 18
"""The API server cuts a long log at its end, which is the part that we need. So we ask for more, and cut the log here
at the front.
"""
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
    try:
        pod = decode(await _post(session, "pods", manifest, params={"fieldValidation": "Strict"}), Pod)
    except AlreadyExists:
        try:
            pod = decode(await session.get(_path(manifest, "pods")), Pod)
        except NotFound as error:
            raise NameTaken(f"Pod {manifest['metadata']['name']} was only just deleted.") from error
    else:
        meta = pod.metadata
        if changed := _changed_incarnation(meta.labels.incarnation, manifest):
            # It would count as a pod of another incarnation, and the operator would replace it forever.
            try:
                await delete_pod(session, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0)
            except ClusterError as error:  # the next pass deletes it
                raise changed from error
            raise changed
    _require_ours(pod.metadata, manifest)
    return pod


async def try_pod(session: Session, manifest: Mapping[str, Any]) -> None:
    """Ask by a dry run whether a pod would be accepted (139). Raises like `create_pod`, except for names in use.

    An old webhook that does not support dry runs counts as no answer.
    """
    params = {"fieldValidation": "Strict", "dryRun": "All"}
    try:
        answer = await _post(session, "pods", manifest, params=params)  # without a resourceVersion, so it is no `Pod`
    except AlreadyExists:
        return
    except BadRequest as error:
        if "does not support dry run" not in error.message:
            raise
    else:
        if changed := _changed_incarnation(_incarnation_of(answer), manifest):
            raise changed


def _changed_incarnation(found: str, manifest: Mapping[str, Any]) -> Forbidden | None:
    """The refusal of a new pod whose label of the incarnation is changed by a mutating webhook to `found`; None if it
    is not.
    """
    if found == (wanted := _incarnation_of(manifest)):
        return None
    how = f"gets {found!r} in place of {wanted!r} in its label {LABEL_INCARNATION}"
    return Forbidden(f"pod {manifest['metadata']['name']} {how}: a mutating webhook changes it", status=403)


def _incarnation_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_INCARNATION, ""))


async def delete_pod(
    session: Session, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
) -> Pod | None:
    """Delete exactly that pod; None if it does not exist any more. `grace_seconds` overrides the pod's own, 0 deletes
    by force.

    The API server answers with the pod even if the pod is removed at once: without a node, or without grace. If another
    deletion was a moment faster, the answer is a status, or a pod without a version.
    """
    options = _delete_options(uid) | ({} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds})
    answer = await _delete(session, _pod(namespace, name), options)
    if answer is None or not _has_version(answer):
        return None
    pod = decode(answer, Pod)
    gone = pod.metadata.deletion_grace_period_seconds == 0 and not pod.metadata.finalizers
    return None if gone else pod


async def annotate_pod(
    session: Session, namespace: str, name: str, *, uid: str, resource_version: str, annotations: Mapping[str, str]
) -> Pod:
    """Set these annotations of exactly that pod, if it still has that resourceVersion.

    Raises:
        Conflict: the pod has changed, or another pod has its name now.
        NotFound: the pod is deleted.
        ClusterError: anything else.
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
    """Nominate exactly that pod for the node, "" to withdraw the nomination, and set the condition. Raises like
    `annotate_pod`.
    """
    meta = pod.metadata
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"nominatedNodeName": node or None, "conditions": [condition]},
    }
    path = f"{_pod(meta.namespace, meta.name)}/status"
    return decode(await session.patch(path, body, content_type=STRATEGIC_MERGE_PATCH, urgency=urgency), Pod)


async def ensure_secret(session: Session, manifest: Mapping[str, Any]) -> None:
    """Create a Secret unless one with its name exists. The operator has no right to read the existing one. Raises
    ClusterError.
    """
    with suppress(AlreadyExists):
        await _post(session, "secrets", manifest)


async def ensure_service(session: Session, manifest: Mapping[str, Any]) -> Service:
    """Create a service unless ours exists; returns it with its ClusterIP. Raises NameTaken, ClusterError."""
    return await _ensure(session, "services", manifest, Service, is_right=lambda _: True)


async def ensure_network_policy(session: Session, manifest: Mapping[str, Any], *, is_new: bool = False) -> None:
    """Create a network policy, or replace ours if it differs. Raises NameTaken, Conflict, ClusterError.

    `is_new`: most likely it does not exist yet.
    """
    wanted = _without_empty(manifest["spec"])

    def is_right(known: CustomObject) -> bool:
        return bool(_without_empty(known.spec.unpack()) == wanted)

    await _ensure(session, "networkpolicies", manifest, CustomObject, is_right=is_right, is_new=is_new)


async def write_resource_quota(
    session: Session, manifest: Mapping[str, Any], *, known: CustomObject | None
) -> CustomObject:
    """Create a ResourceQuota, or replace the known one. Raises AlreadyExists, Conflict, NotFound, ClusterError."""
    if known is None:
        return decode(await _post(session, "resourcequotas", manifest), CustomObject)
    return await _replace(session, "resourcequotas", manifest, known)


async def delete_resource_quota(session: Session, namespace: str, name: str, *, uid: str) -> None:
    """Delete exactly that ResourceQuota; succeeds if it does not exist any more. Raises ClusterError."""
    await _delete(session, f"/api/v1/namespaces/{namespace}/resourcequotas/{name}", _delete_options(uid))


async def ensure_endpoint_slice(
    session: Session, manifest: Mapping[str, Any], *, known: EndpointSlice | None = None
) -> EndpointSlice:
    """Create an endpoint slice, or replace ours if it differs. Raises NameTaken, Conflict, ClusterError."""
    plural = "endpointslices"
    wanted = [(endpoint["addresses"], endpoint.get("nodeName")) for endpoint in manifest["endpoints"]]
    ports = [port["port"] for port in manifest["ports"]]

    def is_right(known: EndpointSlice) -> bool:
        routed = [(list(endpoint.addresses), endpoint.node_name) for endpoint in known.endpoints or ()]
        return routed == wanted and [port.port for port in known.ports or ()] == ports

    if known is not None and is_ours(known.metadata, _owner_uid(manifest)):
        if is_right(known):
            return known
        with suppress(Conflict, NotFound):  # the object was seen before its newest change
            return await _replace(session, plural, manifest, known)
    return await _ensure(session, plural, manifest, EndpointSlice, is_right=is_right)


async def _post(
    session: Session, plural: str, manifest: Mapping[str, Any], *, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Create an object. Raises AlreadyExists, ClusterError; no Conflict.

    The admission of quotas answers with a conflict if it could not write the quota, because many objects are created
    at once.
    """
    try:
        return await session.post(_collection(manifest, plural), manifest, params=params)
    except Conflict as error:
        raise _of_no_version(error) from None


async def _delete(session: Session, path: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Delete exactly the object with the uid in `options`; None if it does not exist any more. Raises ClusterError.

    Only the conflict of the precondition shows that the object is deleted, not one that a proxy or webhook answers.
    """
    with suppress(NotFound, Conflict):
        return await _delete_precisely(session, path, options)
    return None


async def _delete_precisely(session: Session, path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the object if it meets the preconditions in `options`. Raises Conflict if it does not, NotFound,
    ClusterError.
    """
    try:
        return await session.delete(path, options)
    except Conflict as error:
        if "precondition" in error.message.lower():
            raise
        raise _of_no_version(error) from None


def _has_version(answer: Mapping[str, Any]) -> bool:
    """Whether the answer to a deletion is the object as it still exists, and not a status."""
    return answer.get("kind") != "Status" and bool(answer.get("metadata", {}).get("resourceVersion"))


def _of_no_version(error: Conflict) -> UnversionedConflict:
    """The error for a conflict of a write that named no version: no changed object of ours could be read again."""
    return UnversionedConflict(error.message, status=error.status, reason=error.reason, retry_after=error.retry_after)


async def _ensure(
    session: Session,
    plural: str,
    manifest: Mapping[str, Any],
    type_: type[T],
    *,
    is_right: Callable[[T], bool],
    is_new: bool = True,
) -> T:
    """Create the object, or replace the job's own of that name if it differs."""
    refused: ClusterError | None = None
    if is_new:
        try:
            return decode(await _post(session, plural, manifest), type_)
        except (AlreadyExists, Forbidden) as error:
            refused = error
    try:
        present = decode(await session.get(_path(manifest, plural)), type_)
    except NotFound:
        if isinstance(refused, Forbidden):
            raise refused from None
        return decode(await _post(session, plural, manifest), type_)
    _require_ours(present.metadata, manifest)
    return present if is_right(present) else await _replace(session, plural, manifest, present)


async def _replace(session: Session, plural: str, manifest: Mapping[str, Any], known: T) -> T:
    """Replace the known object by the manifest. Raises Conflict, NotFound, ClusterError."""
    meta = {**manifest["metadata"], "resourceVersion": known.metadata.resource_version}
    return decode(await session.put(_path(manifest, plural), {**manifest, "metadata": meta}), type(known))


async def get_job(session: Session, namespace: str, name: str) -> dict[str, Any]:
    """A job as it is now. Raises NotFound, ClusterError."""
    return await session.get(_job(namespace, name))


async def patch_job_status(
    session: Session,
    namespace: str,
    name: str,
    *,
    resource_version: str,
    stored_status: Mapping[str, Any],
    new: Mapping[str, Any],
    urgency: Urgency = Urgency.CHANGE,
) -> dict[str, Any] | None:
    """Turn the status `stored_status`, which the job had at that resourceVersion, into `new`; None if they are equal.

    Raises:
        Conflict: the job changed since.
        NotFound: the object is deleted.
        ClusterError: anything else.
    """
    changes = merge_diff(stored_status, new)
    if not changes:
        return None
    body = {"metadata": {"resourceVersion": resource_version}, "status": changes}
    return await session.patch(f"{_job(namespace, name)}/status", body, urgency=urgency)


async def patch_policy_status(session: Session, policy: CustomObject, new: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the status of the policy into `new`. Raises Conflict, NotFound, ClusterError."""
    meta, changes = policy.metadata, merge_diff(policy.status.unpack(), new)
    body = {"metadata": {"resourceVersion": meta.resource_version}, "status": changes}
    return await session.patch(f"{COLLECTION}/{meta.name}/status", body)


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `old` into `new`: null removes a key, lists are replaced whole."""
    changes: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        previous = old.get(key)
        if isinstance(value, Mapping) and isinstance(previous, Mapping):
            if inner := merge_diff(previous, value):
                changes[key] = inner
        elif key not in old or value != previous:
            changes[key] = value
    return changes


async def delete_job(
    session: Session, namespace: str, name: str, *, uid: str, version: str | None = None
) -> dict[str, Any] | None:
    """Delete exactly that job, if it still has that version; the garbage collector deletes what it owns.

    Returns the job if it stays until its finalizers are removed; None if it is removed.

    Raises:
        Conflict: the job has another version, or another job has its name now.
        ClusterError: anything else.
    """
    options = {**_delete_options(uid), "propagationPolicy": "Background"}
    if version is not None:
        options["preconditions"] = {"uid": uid, "resourceVersion": version}
    try:
        answer = await _delete_precisely(session, _job(namespace, name), options)
    except NotFound:
        return None
    return answer if _has_version(answer) else None


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


def _without_empty(value: Any) -> Any:
    """The object without empty lists, which the API server does not store."""
    if isinstance(value, Mapping):
        return {key: _without_empty(inner) for key, inner in value.items() if inner != []}
    return [_without_empty(inner) for inner in value] if isinstance(value, list | tuple) else value


def is_ours(meta: Meta, job_uid: str) -> bool:
    """Whether that job controls the object, and the object is not being deleted."""
    return meta.controller is not None and meta.controller.uid == job_uid and meta.deletion_timestamp is None


def _owner_uid(manifest: Mapping[str, Any]) -> str:
    """The uid of the job that the object is made for."""
    return str(manifest["metadata"]["ownerReferences"][0]["uid"])


def _require_ours(meta: Meta, manifest: Mapping[str, Any]) -> None:
    kind, controller = manifest["kind"], meta.controller
    if controller is None or controller.uid != _owner_uid(manifest):
        holder = f"belongs to {controller.kind} {controller.name}" if controller else "has no owner"
        if meta.deletion_timestamp is None:
            text = f"{kind} {meta.name} exists and {holder}. Delete that {kind}, or give the job another name."
            if controller is None:
                text = f"{text} {_left_by_a_namesake(manifest)}"
            raise NameTaken(text)
    if meta.deletion_timestamp is not None:
        raise NameTaken(f"{kind} {meta.name} is still being deleted.")


def _left_by_a_namesake(manifest: Mapping[str, Any]) -> str:
    """A sentence on how to remove the object, if an earlier job of the same name was deleted without it (82)."""
    wanted = manifest["metadata"]
    command = removal(wanted["namespace"], wanted.get("labels", {}).get(LABEL_JOB_NAME, ""), _owner_uid(manifest))
    return f"This command deletes what jobs of this name left behind: `{command}`."


def _delete_options(uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def _collection(manifest: Mapping[str, Any], plural: str) -> str:
    version = manifest["apiVersion"]
    root = "api" if version == "v1" else "apis"
    return f"/{root}/{version}/namespaces/{manifest['metadata']['namespace']}/{plural}"


def _path(manifest: Mapping[str, Any], plural: str) -> str:
    return f"{_collection(manifest, plural)}/{manifest['metadata']['name']}"


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _job(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"

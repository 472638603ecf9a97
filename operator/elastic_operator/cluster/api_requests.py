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
    ClusterError,
    Conflict,
    Forbidden,
    NameTaken,
    NotFound,
    UnversionedConflict,
)
from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.objects import CustomObject, EndpointSlice, Service, decode
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.write_queue import Urgency
from elastic_worker.contract import LABEL_JOB_NAME

T = TypeVar("T", Service, EndpointSlice, CustomObject)


async def ensure_secret(session: Session, manifest: Mapping[str, Any]) -> None:
    """Create a Secret unless one with its name exists, which the operator has no right to read. Raises ClusterError."""
    with suppress(AlreadyExists):
        await post(session, "secrets", manifest)


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
        return decode(await post(session, "resourcequotas", manifest), CustomObject)
    return await _replace(session, "resourcequotas", manifest, known)


async def delete_resource_quota(session: Session, namespace: str, name: str, *, uid: str) -> None:
    """Delete exactly that ResourceQuota; succeeds if it does not exist any more. Raises ClusterError."""
    await delete(session, f"/api/v1/namespaces/{namespace}/resourcequotas/{name}", delete_options(uid))


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


async def post(
    session: Session, plural: str, manifest: Mapping[str, Any], *, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Create an object. Raises AlreadyExists, ClusterError; no Conflict.

    The admission of quotas answers with a conflict if many objects are created at once: it could not write the quota.
    """
    try:
        return await session.post(_collection(manifest, plural), manifest, params=params)
    except Conflict as error:
        raise _of_no_version(error) from None


async def delete(session: Session, path: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Delete exactly the object with the uid in `options`; None if it does not exist any more. Raises ClusterError.

    Only the conflict of the precondition shows that the object is deleted, not one that a proxy or webhook answers.
    """
    with suppress(NotFound, Conflict):
        return await _delete_precisely(session, path, options)
    return None


async def _delete_precisely(session: Session, path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the object if it meets the preconditions in `options`. Raises Conflict if not, NotFound, ClusterError."""
    try:
        return await session.delete(path, options)
    except Conflict as error:
        if "precondition" in error.message.lower():
            raise
        raise _of_no_version(error) from None


def has_version(answer: Mapping[str, Any]) -> bool:
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
            return decode(await post(session, plural, manifest), type_)
        except (AlreadyExists, Forbidden) as error:
            refused = error
    try:
        present = decode(await session.get(path_of(manifest, plural)), type_)
    except NotFound:
        if isinstance(refused, Forbidden):
            raise refused from None
        return decode(await post(session, plural, manifest), type_)
    require_ours(present.metadata, manifest)
    return present if is_right(present) else await _replace(session, plural, manifest, present)


async def _replace(session: Session, plural: str, manifest: Mapping[str, Any], known: T) -> T:
    """Replace the known object by the manifest. Raises Conflict, NotFound, ClusterError."""
    meta = {**manifest["metadata"], "resourceVersion": known.metadata.resource_version}
    return decode(await session.put(path_of(manifest, plural), {**manifest, "metadata": meta}), type(known))


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
    Raises Conflict, NotFound, ClusterError.
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

    Returns the job if it stays until its finalizers are removed; None if it is removed. Raises Conflict if the job has
    another version, or another job has its name now; ClusterError.
    """
    options = {**delete_options(uid), "propagationPolicy": "Background"}
    if version is not None:
        options["preconditions"] = {"uid": uid, "resourceVersion": version}
    try:
        answer = await _delete_precisely(session, _job(namespace, name), options)
    except NotFound:
        return None
    return answer if has_version(answer) else None


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


def require_ours(meta: Meta, manifest: Mapping[str, Any]) -> None:
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


def delete_options(uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def _collection(manifest: Mapping[str, Any], plural: str) -> str:
    version = manifest["apiVersion"]
    root = "api" if version == "v1" else "apis"
    return f"/{root}/{version}/namespaces/{manifest['metadata']['namespace']}/{plural}"


def path_of(manifest: Mapping[str, Any], plural: str) -> str:
    return f"{_collection(manifest, plural)}/{manifest['metadata']['name']}"


def _job(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"

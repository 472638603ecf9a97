"""The writes. Each is conditional, so that one that is late, repeated, or made in ignorance does no harm.

A create has a deterministic name and is done if ours is there; a delete names a uid and is done if that object is gone;
a change names the resourceVersion it was decided on. What the API server answers is returned, for the stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from elastic_operator.api.job import API_VERSION, PLURAL
from elastic_operator.api.leftovers import removal
from elastic_operator.cluster.errors import (
    AlreadyExists,
    BadRequest,
    ClusterError,
    Conflict,
    Forbidden,
    NameTaken,
    NotFound,
)
from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.objects import CustomObject, EndpointSlice, Pod, Service, decode
from elastic_operator.cluster.session import Session
from elastic_worker.contract import LABEL_JOB_NAME

T = TypeVar("T", Service, EndpointSlice, CustomObject)

_LOG_BYTES = 1 << 18
"""The API server cuts logs at the end, which is what is wanted; so it is asked for more, and cut here at the front."""
LONG_LOG_BYTES = 1 << 21
"""Most that is read of a log from a point in time on: what is cut off might be what counts."""


async def create_pod(session: Session, manifest: Mapping[str, Any], *, job_uid: str) -> Pod:
    """Create a pod, or find it created.

    Raises:
        NameTaken: the name belongs to another's pod, or to one of ours that is still being deleted.
        BadRequest, Invalid, Forbidden: the API server refuses the manifest; unknown fields are refused, too.
        ClusterError: anything else.
    """
    name, collection = manifest["metadata"]["name"], _core(manifest["metadata"]["namespace"], "pods")
    try:
        return decode(await session.post(collection, manifest, params={"fieldValidation": "Strict"}), Pod)
    except AlreadyExists:
        try:
            pod = decode(await session.get(f"{collection}/{name}"), Pod)
        except NotFound as error:
            raise NameTaken(f"pod {name} was only just deleted", name=name, deleting=True) from error
    _require_ours("pod", pod.metadata, manifest, job_uid)
    return pod


async def try_pod(session: Session, manifest: Mapping[str, Any]) -> None:
    """Ask whether a pod would be taken, without making it. Raises as `create_pod` does, but for names that are in use.

    A webhook of old that cannot be asked so is no answer.
    """
    params = {"fieldValidation": "Strict", "dryRun": "All"}
    try:
        await session.post(_core(manifest["metadata"]["namespace"], "pods"), manifest, params=params)
    except AlreadyExists:
        return
    except BadRequest as error:
        if "does not support dry run" not in error.message:
            raise


async def delete_pod(
    session: Session, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
) -> Pod | None:
    """Delete exactly that pod; None if it is gone. `grace_seconds` overrides the pod's own, 0 deletes by force.

    The API server answers with the pod even if that was its end: bound to no node, or given no grace. Where somebody
    else's deletion was faster by a moment, it answers with a status, or with a pod that is of no version.
    """
    options: dict[str, Any] = _delete_options(uid)
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    try:
        answer = await session.delete(f"{_core(namespace, 'pods')}/{name}", options)
    except (NotFound, Conflict):
        return None
    if answer.get("kind") == "Status" or not answer.get("metadata", {}).get("resourceVersion"):
        return None
    pod = decode(answer, Pod)
    gone = pod.metadata.deletion_grace_period_seconds == 0 and not pod.metadata.finalizers
    return None if gone else pod


async def annotate_pod(
    session: Session, namespace: str, name: str, *, uid: str, resource_version: str, annotations: Mapping[str, str]
) -> Pod:
    """Set these annotations of exactly that pod, as it was at that resourceVersion.

    Raises:
        Conflict: it changed since, or another pod has the name.
        NotFound: it is gone.
        ClusterError: anything else.
    """
    body = {"metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": annotations}}
    return decode(await session.patch(f"{_core(namespace, 'pods')}/{name}", body), Pod)


async def get_pod(session: Session, namespace: str, name: str) -> Pod:
    """A pod as it is now. Raises NotFound, ClusterError."""
    return decode(await session.get(f"{_core(namespace, 'pods')}/{name}"), Pod)


async def ensure_secret(session: Session, manifest: Mapping[str, Any]) -> None:
    """Create a Secret unless there is one of its name; the operator may not look whose. Raises ClusterError."""
    try:
        await session.post(_core(manifest["metadata"]["namespace"], "secrets"), manifest)
    except AlreadyExists:
        return


async def ensure_service(session: Session, manifest: Mapping[str, Any], *, job_uid: str) -> Service:
    """Create a service unless ours is there; it has its ClusterIP. Raises NameTaken, ClusterError."""
    collection = _core(manifest["metadata"]["namespace"], "services")
    return await _ensure(
        session, collection, manifest, Service, kind="Service", job_uid=job_uid, is_right=lambda _: True
    )


async def ensure_network_policy(
    session: Session, manifest: Mapping[str, Any], *, job_uid: str, is_new: bool = False
) -> None:
    """Create a network policy, or replace ours if it says something else. Raises NameTaken, Conflict, ClusterError.

    `is_new`: none is there yet in all likelihood.
    """
    collection = f"/apis/networking.k8s.io/v1/namespaces/{manifest['metadata']['namespace']}/networkpolicies"
    wanted = _without_empty(manifest["spec"])

    def is_right(known: CustomObject) -> bool:
        return bool(_without_empty(known.spec) == wanted)

    kind = "NetworkPolicy"
    await _ensure(
        session, collection, manifest, CustomObject, kind=kind, job_uid=job_uid, is_right=is_right, is_new=is_new
    )


async def create_resource_quota(session: Session, manifest: Mapping[str, Any]) -> CustomObject:
    """Create a ResourceQuota. Raises AlreadyExists, ClusterError."""
    return decode(
        await session.post(_core(manifest["metadata"]["namespace"], "resourcequotas"), manifest), CustomObject
    )


async def replace_resource_quota(
    session: Session, manifest: Mapping[str, Any], *, resource_version: str
) -> CustomObject:
    """Replace a ResourceQuota, as it was at that resourceVersion. Raises Conflict, NotFound, ClusterError."""
    meta = manifest["metadata"]
    body = {**manifest, "metadata": {**meta, "resourceVersion": resource_version}}
    path = f"{_core(meta['namespace'], 'resourcequotas')}/{meta['name']}"
    return decode(await session.put(path, body), CustomObject)


async def delete_resource_quota(session: Session, namespace: str, name: str, *, uid: str) -> None:
    """Delete exactly that ResourceQuota; done if it is gone. Raises ClusterError."""
    try:
        await session.delete(f"{_core(namespace, 'resourcequotas')}/{name}", _delete_options(uid))
    except (NotFound, Conflict):
        return


async def ensure_endpoint_slice(
    session: Session, manifest: Mapping[str, Any], *, job_uid: str, known: EndpointSlice | None = None
) -> EndpointSlice:
    """Create an endpoint slice, or replace ours if it says something else. Raises NameTaken, Conflict, ClusterError.

    `known` is the one of that name as last seen: if it is ours, it is replaced without another look at it.
    """
    collection = f"/apis/discovery.k8s.io/v1/namespaces/{manifest['metadata']['namespace']}/endpointslices"
    wanted = [endpoint["addresses"] for endpoint in manifest["endpoints"]]
    ports = [port["port"] for port in manifest["ports"]]

    def is_right(known: EndpointSlice) -> bool:
        addresses = [list(endpoint.addresses) for endpoint in known.endpoints or ()]
        return addresses == wanted and [port.port for port in known.ports or ()] == ports

    kind = "EndpointSlice"
    if known is not None and is_ours(known.metadata, job_uid):
        if is_right(known):
            return known
        with suppress(Conflict, NotFound):  # it was seen before its newest change
            return await _replace(session, f"{collection}/{manifest['metadata']['name']}", manifest, known)
    return await _ensure(session, collection, manifest, EndpointSlice, kind=kind, job_uid=job_uid, is_right=is_right)


async def _ensure(
    session: Session,
    collection: str,
    manifest: Mapping[str, Any],
    type_: type[T],
    *,
    kind: str,
    job_uid: str,
    is_right: Callable[[T], bool],
    is_new: bool = True,
) -> T:
    """Create the object, or replace the job's own of that name where it is not right.

    Where there is none in all likelihood (`is_new`), it is created without a look first: one request in place of two.
    A quota may refuse what is there already.
    """
    path = f"{collection}/{manifest['metadata']['name']}"
    refused: ClusterError | None = None
    if is_new:
        try:
            return decode(await session.post(collection, manifest), type_)
        except (AlreadyExists, Forbidden) as error:
            refused = error
    try:
        known = decode(await session.get(path), type_)
    except NotFound:
        if isinstance(refused, Forbidden):
            raise refused from None
        return decode(await session.post(collection, manifest), type_)
    _require_ours(kind, known.metadata, manifest, job_uid)
    return known if is_right(known) else await _replace(session, path, manifest, known)


async def _replace(session: Session, path: str, manifest: Mapping[str, Any], known: T) -> T:
    """Put the manifest in the place of what is known. Raises Conflict, NotFound, ClusterError."""
    meta = {**manifest["metadata"], "resourceVersion": known.metadata.resource_version}
    return decode(await session.put(path, {**manifest, "metadata": meta}), type(known))


async def get_job(session: Session, namespace: str, name: str) -> dict[str, Any]:
    """A job as it is now. Raises NotFound, ClusterError."""
    return await session.get(_job(namespace, name))


async def patch_job_status(
    session: Session,
    namespace: str,
    name: str,
    *,
    resource_version: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Turn the status `old`, as the job had it at that resourceVersion, into `new`; None if there is nothing to change.

    Raises:
        Conflict: the job changed since.
        NotFound: it is gone.
        ClusterError: anything else.
    """
    changes = merge_diff(old, new)
    if not changes:
        return None
    body = {"metadata": {"resourceVersion": resource_version}, "status": changes}
    return await session.patch(f"{_job(namespace, name)}/status", body)


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `old` into `new`: null removes a key, lists are replaced whole."""
    changes: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_diff(before, value):
                changes[key] = inner
        elif key not in old or value != before:
            changes[key] = value
    return changes


async def delete_job(session: Session, namespace: str, name: str, *, uid: str) -> None:
    """Delete exactly that job; the garbage collector deletes what it owns."""
    try:
        await session.delete(_job(namespace, name), {**_delete_options(uid), "propagationPolicy": "Background"})
    except (NotFound, Conflict):
        return


async def read_log_tail(
    session: Session, namespace: str, pod: str, container: str, *, lines: int = 100, max_bytes: int = 1 << 14
) -> str:
    """The end of a container's log: at most so many lines and bytes. Raises ClusterError where there is none."""
    params = {"container": container, "tailLines": str(lines), "limitBytes": str(_LOG_BYTES)}
    log = await session.get_bytes(f"{_core(namespace, 'pods')}/{pod}/log", params=params)
    return log[-max_bytes:].decode(errors="replace")


async def read_log_since(session: Session, namespace: str, pod: str, container: str, *, seconds: int) -> str:
    """What a container has logged in so many seconds, by its node's clock.

    Raises ClusterError where there is no log, ValueError where it is longer than what is read of one.
    """
    params = {"container": container, "sinceSeconds": str(seconds), "limitBytes": str(LONG_LOG_BYTES)}
    log = await session.get_bytes(f"{_core(namespace, 'pods')}/{pod}/log", params=params)
    if len(log) >= LONG_LOG_BYTES:
        raise ValueError(f"more than {LONG_LOG_BYTES} bytes in {seconds} s")
    return log.decode(errors="replace")


def _without_empty(value: Any) -> Any:
    """Without empty lists, which the API server leaves out of what it stores."""
    if isinstance(value, Mapping):
        return {key: _without_empty(inner) for key, inner in value.items() if inner != []}
    return [_without_empty(inner) for inner in value] if isinstance(value, list | tuple) else value


def is_ours(meta: Meta, job_uid: str) -> bool:
    """Whether that job controls the object, and it is not being deleted."""
    return meta.controller is not None and meta.controller.uid == job_uid and meta.deletion_timestamp is None


def _require_ours(kind: str, meta: Meta, manifest: Mapping[str, Any], job_uid: str) -> None:
    controller = meta.controller
    if controller is None or controller.uid != job_uid:
        holder = f"belongs to {controller.kind} {controller.name}" if controller else "belongs to nobody"
        if meta.deletion_timestamp is None:
            remedy = f"delete that {kind}, or give the job another name"
            if controller is None:
                remedy = f"{remedy}. {_left_by_a_namesake(manifest['metadata'], job_uid)}"
            raise NameTaken(f"{kind} {meta.name} exists and {holder}: {remedy}", name=meta.name, deleting=False)
    if meta.deletion_timestamp is not None:
        raise NameTaken(f"{kind} {meta.name} is still being deleted", name=meta.name, deleting=True)


def _left_by_a_namesake(wanted: Mapping[str, Any], job_uid: str) -> str:
    """How to get rid of it where a job of the same name was deleted without what it had."""
    command = removal(wanted["namespace"], wanted.get("labels", {}).get(LABEL_JOB_NAME, ""), job_uid)
    return f"All that jobs of this name left behind goes with: {command}"


def _delete_options(uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def _core(namespace: str, plural: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}"


def _job(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"

"""An API server in memory: objects, resourceVersions, and the answers that the operator's session would get.

Every change is told at once to whoever listens. Bodies are never changed in place, so they may be shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.errors import AlreadyExists, Conflict, NotFound
from tests.simulate.faults import Faults
from tests.simulate.moments import Moments

Body = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace, name."""
Listener = Callable[[str, Body | None, Body | None], None]
"""Called with the plural, the object before and the object now; None where there was or is none."""

PODS, NODES, JOBS = "pods", "nodes", "elasticpytorchjobs"
SERVICES, SLICES, EVENTS = "services", "endpointslices", "events"
POLICIES, NAMESPACES, PRIORITY_CLASSES = "gpuquotapolicies", "namespaces", "priorityclasses"

PRIORITIES: Mapping[str, Body] = {
    "": {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
    "elastic-pytorch-worker": {"priority": 0, "preemptionPolicy": "Never"},
    "elastic-pytorch-master": {"priority": 1, "preemptionPolicy": "Never"},
    "patient": {"priority": -10, "preemptionPolicy": "PreemptLowerPriority"},
    "urgent": {"priority": 1000, "preemptionPolicy": "PreemptLowerPriority"},
    "polite": {"priority": 1000, "preemptionPolicy": "Never"},
}
"""What the server fills into pods of each PriorityClass."""

_PATH = re.compile(r".*?/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?(?:/([^/]+))?")


@dataclass(frozen=True, slots=True)
class Write:
    """What the operator did to a pod: `verb` is POST, DELETE or NOMINATE, `pod` the pod as it was then.

    `promised` are the pods that were nominated then, with the nodes.
    """

    verb: str
    pod: Body
    promised: Mapping[str, str] = field(default_factory=dict)


class Server:
    """Objects by kind, namespace and name."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self.revision = 1000
        self.objects: dict[str, dict[Key, Body]] = {}
        self.listeners: list[Listener] = []
        self._born = 0

    def all(self, plural: str) -> list[Body]:
        """All objects of a kind, the oldest first."""
        return list(self.objects.get(plural, {}).values())

    def find(self, plural: str, namespace: str, name: str) -> Body | None:
        """The object of that name."""
        return self.objects.get(plural, {}).get((plural, namespace, name))

    def create(self, plural: str, body: Mapping[str, Any]) -> Body:
        """Take in a new object. Raises AlreadyExists."""
        given = body["metadata"]
        key = (plural, given.get("namespace", ""), given["name"])
        if key in self.objects.get(plural, {}):
            raise AlreadyExists(f"{plural} {key[2]!r} already exists", status=409, reason="AlreadyExists")
        self._born += 1
        # Uids must not be in the order of birth: ties are broken by them.
        uid = f"{self._born * 2654435761 % 2**32:08x}-{self._born}"
        meta = {**given, "uid": uid, "creationTimestamp": self.moments.text(), "generation": 1}
        return self._store(key, None, {**body, "metadata": meta})

    def update(self, plural: str, old: Body, **fields: Any) -> Body:
        """The object with these top-level fields replaced."""
        return self.replace(plural, old, {**old, **fields})

    def replace(self, plural: str, old: Body, new: Body) -> Body:
        """The object as it is to be, under the next version."""
        meta = old["metadata"]
        return self._store((plural, meta.get("namespace", ""), meta["name"]), old, new)

    def relabel(self, plural: str, old: Body, **meta: Any) -> Body:
        """The object with these fields of its metadata replaced."""
        return self.update(plural, old, metadata={**old["metadata"], **meta})

    def edit(self, plural: str, old: Body, spec: Mapping[str, Any]) -> Body:
        """The object with another spec, under the next generation."""
        meta = {**old["metadata"], "generation": old["metadata"]["generation"] + 1}
        return self.update(plural, old, metadata=meta, spec=dict(spec))

    def remove(self, plural: str, old: Body) -> None:
        """The object is no more."""
        meta = old["metadata"]
        known = self.objects[plural].pop((plural, meta.get("namespace", ""), meta["name"]))
        self.revision += 1
        gone = {**known, "metadata": {**known["metadata"], "resourceVersion": str(self.revision)}}
        self._tell(plural, gone, None)

    def delete_pod(self, pod: Body, grace: int | None = None) -> Body:
        """Ask the pod to go; it is gone at once if it has no node, has ended, or gets no grace."""
        meta = pod["metadata"]
        seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        ended = pod["status"]["phase"] in ("Succeeded", "Failed")
        if not pod["spec"].get("nodeName") or ended or seconds == 0:
            self.remove(PODS, pod)
            return {**pod, "metadata": {**meta, "deletionGracePeriodSeconds": 0}}
        if "deletionTimestamp" in meta:
            return pod
        until = self.moments.text(ahead=seconds)
        return self.relabel(PODS, pod, deletionTimestamp=until, deletionGracePeriodSeconds=seconds)

    def _store(self, key: Key, old: Body | None, new: Body) -> Body:
        self.revision += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.revision)}}
        self.objects.setdefault(key[0], {})[key] = new
        self._tell(key[0], old, new)
        return new

    def _tell(self, plural: str, old: Body | None, new: Body | None) -> None:
        for listener in self.listeners:
            listener(plural, old, new)


class Wire:
    """The operator's session with the server: the same methods, answered at once; `writes` are what it did to pods."""

    def __init__(self, server: Server, faults: Faults) -> None:
        self.server, self.faults = server, faults
        self.clock = ServerClock(server.moments.monotonic)
        self.writes: list[Write] = []

    def api_time(self) -> float:
        """Now, in epoch seconds."""
        return self.clock.time()

    async def get(self, path: str, **_: object) -> Body:
        """One object. Raises NotFound."""
        return self._found(path)[2]

    async def get_bytes(self, path: str, **_: object) -> bytes:
        """A log: programs here say nothing."""
        self._found(path)
        return b""

    async def post(self, path: str, body: Body, **_: object) -> Body:
        """Create an object. Raises AlreadyExists."""
        namespace, plural, _, _ = _parts(path)
        create = partial(self._create, plural, _as_created(plural, body, namespace))
        return self.faults.through(create) if plural in (PODS, JOBS) else create()

    def _create(self, plural: str, body: Body) -> Body:
        new = self.server.create(plural, body)
        if plural == PODS:
            self.writes.append(Write("POST", new))
        return new

    async def put(self, path: str, body: Body) -> Body:
        """Replace an object. Raises NotFound, Conflict."""
        plural, _, old = self._found(path)
        self._require_version(old, body)
        kept = {name: old["metadata"][name] for name in ("uid", "creationTimestamp", "generation")}
        return self.server.update(plural, {**body, "metadata": {**body["metadata"], **kept}})

    async def patch(self, path: str, body: Body, **_: object) -> Body:
        """Merge into an object, or its status. Raises NotFound, Conflict."""
        plural, part, old = self._found(path)
        self._require_version(old, body)
        merge = partial(self._merge, plural, part, old, body)
        return self.faults.through(merge, of_version=True) if plural in (PODS, JOBS) else merge()

    def _merge(self, plural: str, part: str, old: Body, body: Body) -> Body:
        if part == "status" and plural == PODS:
            return self._nominate(old, body)
        if part == "status":
            return self.server.update(plural, old, status=merged(old.get("status", {}), body["status"]))
        return self.server.update(plural, old, **merged(old, {**body, "metadata": {}}))

    def _nominate(self, old: Body, body: Body) -> Body:
        """A write of a pod's status takes the annotations with it."""
        if body["metadata"].get("uid") not in (None, old["metadata"]["uid"]):
            raise Conflict("the uid is another one", status=409, reason="Conflict")
        annotations = merged(old["metadata"].get("annotations", {}), body["metadata"].get("annotations", {}))
        meta = {**old["metadata"], "annotations": annotations}
        new = self.server.update(PODS, old, metadata=meta, status=merged(old["status"], body["status"]))
        self.writes.append(Write("NOMINATE", new))
        return new

    def _promised(self) -> dict[str, str]:
        waiting = [pod for pod in self.server.all(PODS) if "nominatedNodeName" in pod["status"]]
        return {pod["metadata"]["uid"]: pod["status"]["nominatedNodeName"] for pod in waiting}

    async def delete(self, path: str, options: Body) -> Body:
        """Delete an object. Raises NotFound, Conflict."""
        plural, _, old = self._found(path)
        if options["preconditions"]["uid"] != old["metadata"]["uid"]:
            raise Conflict("the uid is another one", status=409, reason="Conflict")
        if plural != PODS:
            self.server.remove(plural, old)
            return old
        return self.faults.through(partial(self._delete_pod, old, options.get("gracePeriodSeconds")))

    def _delete_pod(self, old: Body, grace: int | None) -> Body:
        if "deletionTimestamp" not in old["metadata"]:
            self.writes.append(Write("DELETE", old, self._promised()))
        return self.server.delete_pod(old, grace)

    def _found(self, path: str) -> tuple[str, str, Body]:
        namespace, plural, name, part = _parts(path)
        found = self.server.find(plural, namespace, name)
        if found is None:
            raise NotFound(f"{plural} {name!r} not found", status=404, reason="NotFound")
        return plural, part, found

    def _require_version(self, old: Body, body: Body) -> None:
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, old["metadata"]["resourceVersion"]):
            raise Conflict("the object has been modified", status=409, reason="Conflict")


def merged(old: Any, patch: Any) -> Any:
    """`old` after the JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    kept = {k: v for k, v in (old if isinstance(old, dict) else {}).items() if patch.get(k, ...) is not None}
    return kept | {k: merged(kept.get(k), v) for k, v in patch.items() if v is not None}


def _parts(path: str) -> tuple[str, str, str, str]:
    match = _PATH.fullmatch(path)
    assert match is not None, f"no path of this API: {path}"
    namespace, plural, name, part = match.groups(default="")
    return namespace, plural, name, part


def _as_created(plural: str, body: Body, namespace: str) -> Body:
    """The object with what the server fills in."""
    body = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
    if plural == PODS:
        body["status"] = {"phase": "Pending"}
        body["spec"] = {**body["spec"], **PRIORITIES[body["spec"].get("priorityClassName", "")]}
    if plural == SERVICES:
        body["spec"] = {**body["spec"], "clusterIP": "10.96.0.10"}
    return body

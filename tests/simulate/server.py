"""The objects of the in-memory API server, and their resourceVersions. `api` answers requests about them.

All listeners hear of each change at once. No body is changed in place, so callers may share bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elastic_operator.cluster.errors import AlreadyExists
from tests.simulate.virtual_clock import VirtualClock

Body = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace, name."""
Listener = Callable[[str, Body | None, Body | None], None]
"""Called with the plural, the object before and the object now; None where there was or is none."""

PODS, NODES, JOBS = "pods", "nodes", "elasticpytorchjobs"
SERVICES, SLICES, EVENTS = "services", "endpointslices", "events"
POLICIES, NAMESPACES, PRIORITY_CLASSES = "gpuquotapolicies", "namespaces", "priorityclasses"
DEVICE_CLASSES = "deviceclasses"

PRIORITIES: Mapping[str, Body] = {
    "": {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
    "elastic-pytorch-worker": {"priority": 0, "preemptionPolicy": "Never"},
    "elastic-pytorch-master": {"priority": 1, "preemptionPolicy": "Never"},
    "patient": {"priority": -10, "preemptionPolicy": "PreemptLowerPriority"},
    "urgent": {"priority": 1000, "preemptionPolicy": "PreemptLowerPriority"},
    "polite": {"priority": 1000, "preemptionPolicy": "Never"},
}
"""What the server fills into pods of each PriorityClass."""

DEFAULT_POLICY: Mapping[str, Any] = {"perNamespace": False, "borrowing": {}}
"""The operators' setting for namespaces without a policy, where nobody sets it."""


class Server:
    """Objects by kind, namespace and name."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.default_policy = DEFAULT_POLICY
        self.revision = 1000
        self.objects: dict[str, dict[Key, Body]] = {}
        self.listeners: list[Listener] = []
        self.aside: dict[str, str] = {}
        """Names of the objects that the operator may have quarantined, with the station that raises (`raising`)."""
        self.in_force: dict[str, Mapping[str, Any] | None] = {}
        """By the uid of a policy that is quarantined: the spec that holds in place of its own, None for none."""
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
        meta = {**given, "uid": uid, "creationTimestamp": self.clock.text(), "generation": 1}
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
        until = self.clock.text(ahead=seconds)
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


def merged(old: Any, patch: Any, *, strategic: bool = False) -> Any:
    """`old` after the JSON merge patch (RFC 7386), or after a strategic one, which merges conditions by their type."""
    if not isinstance(patch, dict):
        return patch
    kept = {k: v for k, v in (old if isinstance(old, dict) else {}).items() if patch.get(k, ...) is not None}
    new = {k: merged(kept.get(k), v, strategic=strategic) for k, v in patch.items() if v is not None}
    if strategic and "conditions" in new:
        by_type = {one["type"]: one for one in kept.get("conditions", ())}
        by_type |= {one["type"]: {**by_type.get(one["type"], {}), **one} for one in new["conditions"]}
        new["conditions"] = list(by_type.values())
    return kept | new

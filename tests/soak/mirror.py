"""A real API server behind the interface of the one in memory, so that the simulator's random events act on it and the
simulator's checker reads it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from elastic_api.job import API_VERSION
from elastic_api.policy import KIND as POLICY_KIND
from elastic_operator.cluster.errors import AlreadyExists
from tests.simulate import server as kinds
from tests.simulate.server import Body
from tests.simulate.virtual_clock import VirtualClock

CORE, OURS = "/api/v1", f"/apis/{API_VERSION}"
ROOTS = {kinds.PODS: CORE, kinds.NODES: CORE, kinds.NAMESPACES: CORE, kinds.JOBS: OURS, kinds.POLICIES: OURS}
NAMESPACED = (kinds.PODS, kinds.JOBS)
WITH_STATUS = (kinds.NODES,)
KINDS = {kinds.POLICIES: {"apiVersion": API_VERSION, "kind": POLICY_KIND}}
MERGE = {"Content-Type": "application/merge-patch+json"}
TRIES = 20


class WallClock(VirtualClock):
    """The time there is, as histories see it."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def passed(self) -> float:  # type: ignore[override]
        """Seconds since the history began."""
        return time.monotonic() - self._begun

    def time(self) -> float:
        """Epoch seconds."""
        return time.time()


class Photo:
    """All objects of one moment, for the checker; `aside` and `in_force` are as in the simulator's server."""

    def __init__(self, clock: VirtualClock, objects: Mapping[str, list[Body]], *, aside: Mapping[str, str]) -> None:
        self.clock, self._objects, self.aside = clock, objects, aside
        self.in_force: dict[str, Body | None] = {}
        self.default_policy = kinds.DEFAULT_POLICY

    def all(self, plural: str) -> list[Body]:
        """All objects of a kind, the oldest first."""
        return list(self._objects.get(plural, []))


class LiveServer:
    """The objects that histories are about, or those of one namespace.

    An edit of what somebody else has just changed is tried again.
    """

    def __init__(self, api: httpx.Client, *, namespace: str = "") -> None:
        self.api, self.namespace = api, namespace
        self.clock: VirtualClock = WallClock()
        self.default_policy = kinds.DEFAULT_POLICY
        self.in_force: dict[str, Body | None] = {}

    def photo(self) -> Photo:
        """Everything, each kind as of one moment."""
        objects = {plural: self.all(plural) for plural in ROOTS}
        return Photo(self.clock, objects, aside=self.aside_in(objects))

    def aside_in(self, objects: Mapping[str, list[Body]]) -> dict[str, str]:  # noqa: ARG002 - may be overridden
        """Names of objects of which no rule of good conduct is expected, each with a reason."""
        return {}

    def all(self, plural: str) -> list[Body]:
        """All objects of a kind, the oldest first."""
        items = self._get(_path(plural, self.namespace)).raise_for_status().json()["items"]
        ages = sorted(items, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
        return [_as_simulated(plural, one) for one in ages]

    def _get(self, path: str) -> httpx.Response:
        """While the storage of a new kind is set up, the API server asks to come again."""
        answer = self.api.get(path)
        for _ in range(TRIES):
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
                break
            time.sleep(1.0)
            answer = self.api.get(path)
        return answer

    def find(self, plural: str, namespace: str, name: str) -> Body | None:
        """The object of that name."""
        answer = self.api.get(_path(plural, namespace, name))
        return None if answer.status_code == httpx.codes.NOT_FOUND else _as_simulated(plural, _accepted(answer))

    def create(self, plural: str, body: Mapping[str, Any]) -> Body:
        """A new object. Raises AlreadyExists."""
        namespace, kind = body["metadata"].get("namespace", ""), KINDS.get(plural, {})
        answer = self.api.post(_path(plural, namespace), json={**kind, **body}, params={"fieldValidation": "Strict"})
        if answer.status_code == httpx.codes.CONFLICT:
            raise AlreadyExists(answer.text, status=409, reason="AlreadyExists")
        made = _accepted(answer)
        if plural in WITH_STATUS:
            made = self.update(plural, made, status=body["status"])
        return _as_simulated(plural, made)

    def update(self, plural: str, old: Body, **fields: Any) -> Body:
        """The object with these top-level fields merged in; its status by the way a status is written."""
        meta = old["metadata"]
        path = _path(plural, meta.get("namespace", ""), meta["name"])
        answer = self.api.patch(f"{path}/status" if "status" in fields else path, headers=MERGE, json=fields)
        return old if answer.status_code == httpx.codes.NOT_FOUND else _accepted(answer)

    def edit(self, plural: str, old: Body, spec: Mapping[str, Any]) -> Body:
        """The object with another spec."""
        meta = old["metadata"]
        path = _path(plural, meta.get("namespace", ""), meta["name"])
        for _ in range(TRIES):
            known = self.api.get(path)
            if known.status_code == httpx.codes.NOT_FOUND:
                return old
            answer = self.api.put(path, json={**_accepted(known), "spec": dict(spec)})
            if answer.status_code != httpx.codes.CONFLICT:
                return _accepted(answer)
        raise AssertionError(f"{path} changes all the time")

    def remove(self, plural: str, old: Body) -> None:
        """Delete the object."""
        meta = old["metadata"]
        options = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
        self.api.request("DELETE", _path(plural, meta.get("namespace", ""), meta["name"]), json=options)

    def delete_pod(self, pod: Body, grace: int | None = None) -> Body:
        """Ask the pod to go."""
        meta = pod["metadata"]
        options: dict[str, Any] = {"preconditions": {"uid": meta["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self.api.request("DELETE", _path(kinds.PODS, meta["namespace"], meta["name"]), json=options)
        return pod


def _path(plural: str, namespace: str, name: str = "") -> str:
    where = f"/namespaces/{namespace}" if plural in NAMESPACED and namespace else ""
    return f"{ROOTS[plural]}{where}/{plural}" + (f"/{name}" if name else "")


def _accepted(answer: httpx.Response) -> Body:
    assert answer.is_success, answer.text
    body: Body = answer.json()
    return body


def _as_simulated(plural: str, body: Body) -> Body:
    """A node says first whether it is Ready, and tells only of what pods here ask for."""
    if plural != kinds.NODES:
        return {"status": {}, **body}
    status = body.get("status", {})
    ready = [c for c in status.get("conditions", []) if c["type"] == "Ready"] or [{"type": "Ready", "status": "False"}]
    room = {name: amount for name, amount in status.get("allocatable", {}).items() if amount.isdecimal()}
    return {**body, "spec": body.get("spec", {}), "status": {**status, "conditions": ready, "allocatable": room}}

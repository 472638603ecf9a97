"""The HTTP interface of the in-memory API server: paths, preconditions, subresources, lists, watches, and errors.

It answers the operator's requests as a real API server does: `tests/apiserver/test_same_answers.py` compares the two.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from elastic_operator.cluster.errors import AlreadyExists
from tests.kit.requests import Request, conflict, failure
from tests.simulate import server as kinds
from tests.simulate.server import PRIORITIES, Body, Server, merged

BOOKMARK_SECONDS = 60.0
HISTORY = 5_000
"""So many changes are remembered; a watch that resumes from before them gets 410."""
LEASES, SECRETS, NETWORK_POLICIES, QUOTAS = "leases", "secrets", "networkpolicies", "resourcequotas"
CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that is served. `only_known`: a replacement must name the version that it replaces; `created_by_put`: or
    makes it, where there is none.
    """

    name: str
    group: str = "v1"
    namespaced: bool = True
    has_status: bool = False
    only_known: bool = False
    created_by_put: bool = False
    generations: bool = False


OURS = "elastic-pytorch.dev/v1beta1"
KINDS: Mapping[str, Kind] = {
    kinds.PODS: Kind("Pod", has_status=True),
    kinds.SERVICES: Kind("Service", has_status=True),
    kinds.NODES: Kind("Node", namespaced=False, has_status=True),
    kinds.NAMESPACES: Kind("Namespace", namespaced=False, has_status=True),
    SECRETS: Kind("Secret"),
    CLAIMS: Kind("PersistentVolumeClaim", has_status=True),
    VOLUMES: Kind("PersistentVolume", namespaced=False, has_status=True),
    kinds.PRIORITY_CLASSES: Kind("PriorityClass", "scheduling.k8s.io/v1", namespaced=False),
    kinds.DEVICE_CLASSES: Kind("DeviceClass", "resource.k8s.io/v1", namespaced=False),
    kinds.SLICES: Kind("EndpointSlice", "discovery.k8s.io/v1"),
    NETWORK_POLICIES: Kind("NetworkPolicy", "networking.k8s.io/v1"),
    QUOTAS: Kind("ResourceQuota", has_status=True),
    LEASES: Kind("Lease", "coordination.k8s.io/v1", only_known=True, created_by_put=True),
    kinds.EVENTS: Kind("Event", "events.k8s.io/v1"),
    kinds.JOBS: Kind("ElasticPyTorchJob", OURS, has_status=True, only_known=True, generations=True),
    kinds.POLICIES: Kind("GpuQuotaPolicy", OURS, namespaced=False, has_status=True, only_known=True, generations=True),
}

_encode = msgspec.json.Encoder().encode
_ANY = re.compile(r"/(?:api/v1|apis/([^/]+/[^/]+))/(.*)")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body."""

    status: int
    body: bytes


Told = tuple[int, Body | None]
"""A status, and the object that is shown."""


class RefusedError(Exception):
    """The server says no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    @property
    def answer(self) -> Answer:
        """As it is told."""
        return refusal(self.status, self.reason, self.message)


def refusal(status: int, reason: str, message: str) -> Answer:
    """A Status that says no."""
    return Answer(status, _encode(failure(status, reason, message)))


Admission = Callable[[Request, str, Body], None]
"""Raises RefusedError for an object that is not to be created; is given the request, the plural and the object."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a path names."""

    plural: str
    namespace: str = ""
    name: str = ""
    part: str = ""


class Watch:
    """An open watch: it calls `on_line` with each line, and with None at its end."""

    def __init__(self, place: _Place, selects: Callable[[Body], bool], on_line: Callable[[bytes | None], None]) -> None:
        self.place, self.selects, self.on_line = place, selects, on_line
        self.timers: list[asyncio.TimerHandle] = []

    def tell(self, plural: str, old: Body | None, new: Body | None) -> None:
        """What of that change is seen here."""
        if plural != self.place.plural or not within(self.place, new or old or {}):
            return
        was, is_ = old is not None and self.selects(old), new is not None and self.selects(new)
        if is_:
            self.send("MODIFIED" if was else "ADDED", plural, new)
        elif was:
            self.send("DELETED", plural, old if new is None else new)

    def send(self, type_: str, plural: str, body: Body | None) -> None:
        """One event."""
        self.on_line(_encode({"type": type_, "object": _shown(plural, body or {})}) + b"\n")


class Api:
    """Answers requests for the objects of `server`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.unserved: set[str] = set()
        """Kinds whose definition is not installed."""
        self.logs: dict[str, bytes] = {}
        """What pods have said, by name; the others nothing."""
        self.admission: list[Admission] = []
        self.watches: dict[Watch, None] = {}
        self._history: deque[tuple[int, str, Body | None, Body | None]] = deque(maxlen=HISTORY)
        self._oldest = server.revision
        self._pages: dict[str, tuple[list[Body], int, str]] = {}
        server.listeners.append(self._changed)

    # -- one answer --------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        """The answer to anything but a watch."""
        try:
            status, body = self.carry_out(request)
        except RefusedError as error:
            return error.answer
        if isinstance(body, bytes):
            return Answer(status, body)
        return Answer(status, b"" if body is None else _encode(body))

    def carry_out(self, request: Request) -> Told:
        """The same, not put into words. Raises RefusedError."""
        handlers = {"GET": self._get, "POST": self._post, "PUT": self._put, "PATCH": self._patch}
        handlers["DELETE"] = self._delete
        return handlers[request.method](self._place(request.path), request)

    def _place(self, path: str) -> _Place:
        match = _ANY.fullmatch(path)
        parts = match[2].split("/") if match else []
        if len(parts) > 2 and parts[0] == "namespaces":
            place = _Place(parts[2], parts[1], *parts[3:])
        else:
            place = _Place(parts[0] if parts else "", "", *parts[1:])
        kind = KINDS.get(place.plural)
        if place.part == "status" and kind and not kind.has_status:
            kind = None
        known = kind and place.plural not in self.unserved and match and (match[1] or "v1") == kind.group
        if not known:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return place

    def _get(self, place: _Place, request: Request) -> Told:
        if not place.name:
            return self._list(place, request)
        found = self._found(place)
        return (200, self.logs.get(place.name, b"")) if place.part == "log" else _ok(place.plural, found)

    def _found(self, place: _Place) -> Body:
        found = self.server.find(place.plural, place.namespace, place.name)
        if found is None:
            raise RefusedError(404, "NotFound", f'{place.plural} "{place.name}" not found')
        return found

    def _post(self, place: _Place, request: Request) -> Told:
        body = self._as_created(place, request.body)
        if KINDS[place.plural].namespaced:
            self._require_namespace(place.namespace)
        for admit in self.admission:
            admit(request, place.plural, body)
        self._fill_in(place.plural, body)
        if (
            "dryRun" in request.query
            and self.server.find(place.plural, place.namespace, body["metadata"]["name"]) is None
        ):
            return _ok(place.plural, body, status=201)
        try:
            return _ok(place.plural, self.server.create(place.plural, body), status=201)
        except AlreadyExists as error:
            name = body["metadata"]["name"]
            raise RefusedError(409, "AlreadyExists", f'{place.plural} "{name}" already exists') from error

    def _as_created(self, place: _Place, given: Body) -> Body:
        meta = {**given["metadata"]} | ({"namespace": place.namespace} if place.namespace else {})
        if given["metadata"].get("namespace", place.namespace) != place.namespace:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise RefusedError(400, "BadRequest", message)
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?", meta.get("name", "")):
            raise RefusedError(422, "Invalid", f"metadata.name: Invalid value: {meta.get('name')!r}")
        if meta.pop("resourceVersion", ""):
            raise RefusedError(500, "", "resourceVersion should not be set on objects to be created")
        body = {name: value for name, value in given.items() if name not in ("kind", "apiVersion")}
        if KINDS[place.plural].has_status:
            body.pop("status", None)
        return {**body, "metadata": meta}

    def _require_namespace(self, name: str) -> None:
        namespace = self.server.find(kinds.NAMESPACES, "", name)
        if namespace is None:
            raise RefusedError(404, "NotFound", f'namespaces "{name}" not found')
        if "deletionTimestamp" in namespace["metadata"]:
            raise RefusedError(403, "Forbidden", f"unable to create new content in namespace {name}: it is terminating")

    def _fill_in(self, plural: str, body: Body) -> None:
        """What defaulting and admission add."""
        if plural == kinds.PODS:
            of_class = body["spec"].get("priorityClassName", "")
            if of_class not in PRIORITIES:
                raise RefusedError(403, "Forbidden", f"no PriorityClass with name {of_class} was found")
            defaults = {"terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler"}
            body["spec"] = {**defaults, **body["spec"], **PRIORITIES[of_class]}
            body["status"] = {"phase": "Pending"}
        if plural == kinds.SERVICES:
            body["spec"] = {"clusterIP": "10.96.0.10", **body["spec"]}

    def _put(self, place: _Place, request: Request) -> Told:
        known = self.server.find(place.plural, place.namespace, place.name)
        if known is None and KINDS[place.plural].created_by_put:
            meta = {k: v for k, v in request.body["metadata"].items() if k != "resourceVersion"}
            return self._post(place, replace(request, body={**request.body, "metadata": meta}))
        old, body = self._found(place), request.body
        given = body.get("metadata", {})
        if KINDS[place.plural].only_known and not given.get("resourceVersion"):
            raise RefusedError(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        _require_same(place, old, given)
        new = {name: value for name, value in body.items() if name not in ("kind", "apiVersion")}
        return self._stored(place, old, {**new, "metadata": {**given}})

    def _patch(self, place: _Place, request: Request) -> Told:
        old, patch = self._found(place), request.body
        given = patch.get("metadata") or {}
        _require_same(place, old, {k: v for k, v in given.items() if k != "uid"})
        if given.get("uid") not in (None, old["metadata"]["uid"]):
            raise RefusedError(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        return self._stored(place, old, merged(old, patch, strategic=request.strategic))

    def _stored(self, place: _Place, old: Body, new: Body) -> Told:
        """What of `new` may be written this way; nothing happens where nothing changes."""
        kind, before = KINDS[place.plural], old["metadata"]
        fixed = ("uid", "name", "namespace", "creationTimestamp", "generation", "resourceVersion")
        fixed += ("deletionTimestamp", "deletionGracePeriodSeconds")
        meta = {k: v for k, v in new["metadata"].items() if k not in fixed and v not in ({}, [])}
        meta |= {k: before[k] for k in fixed if k in before}
        if place.part == "status":
            of_pod = {k: v for k, v in meta.items() if k != "ownerReferences"}
            kept = {k: v for k, v in before.items() if k in ("ownerReferences", *fixed)}
            written = {**of_pod, **kept} if place.plural == kinds.PODS else before
            new = {**old, "metadata": written, "status": new.get("status", {})}
        else:
            status = {"status": old["status"]} if kind.has_status and "status" in old else {}
            rest = {k: v for k, v in new.items() if k not in ("metadata", "status") or not kind.has_status}
            new = {**rest, **status, "metadata": meta}
        if kind.generations and new.get("spec") != old.get("spec"):
            new["metadata"] = {**new["metadata"], "generation": before["generation"] + 1}
        if new == old:
            return _ok(place.plural, old)
        waits = before.get("deletionGracePeriodSeconds") or new["metadata"].get("finalizers")
        if "deletionTimestamp" in before and not waits:
            self.server.remove(place.plural, old)
            return _ok(place.plural, new)
        return _ok(place.plural, self.server.replace(place.plural, old, new))

    def _delete(self, place: _Place, request: Request) -> Told:
        old, options = self._found(place), request.body or {}
        wanted = options.get("preconditions") or {}
        for name, value in wanted.items():
            if value != old["metadata"][name]:
                why = f"the {name} in the precondition ({value}) does not match ({old['metadata'][name]})"
                raise _conflict(place, why)
        if old["metadata"].get("finalizers"):
            return _ok(place.plural, self._marked(place, old))
        if place.plural == kinds.PODS:
            return _ok(place.plural, self._as_terminating(old, options.get("gracePeriodSeconds")))
        self.server.remove(place.plural, old)
        if place.plural in (kinds.SERVICES, QUOTAS):
            return _ok(place.plural, old)
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _as_terminating(self, pod: Body, grace: int | None) -> Body:
        """The answer shows a terminating pod, even if the pod is gone at once."""
        deleted = self.server.delete_pod(pod, grace)
        return {**deleted, "metadata": {"deletionTimestamp": self.server.clock.text(), **deleted["metadata"]}}

    def _marked(self, place: _Place, old: Body) -> Body:
        if "deletionTimestamp" in old["metadata"]:
            return old
        now = self.server.clock.text()
        return self.server.relabel(place.plural, old, deletionTimestamp=now, deletionGracePeriodSeconds=0)

    # -- lists -------------------------------------------------------------------------------------------------------

    def _list(self, place: _Place, request: Request) -> Told:
        if token := request.query.get("continue", ""):
            if token not in self._pages:
                raise RefusedError(410, "Expired", "The provided continue parameter is too old")
            rest, limit, revision = self._pages.pop(token)
        else:
            selects = selector(request.query)
            rest = [one for one in self.server.all(place.plural) if within(place, one) and selects(one)]
            rest.sort(key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))
            limit, revision = int(request.query.get("limit", 0)), str(self.server.revision)
        page = rest[:limit] if limit else rest
        meta = {"resourceVersion": revision}
        if len(page) < len(rest):
            meta["continue"] = f"{revision}-{len(self._pages)}-{len(rest)}"
            self._pages[meta["continue"]] = (rest[limit:], limit, revision)
        kind = KINDS[place.plural]
        head = {"kind": f"{kind.name}List", "apiVersion": kind.group, "metadata": meta}
        return 200, {**head, "items": [_shown(place.plural, one) for one in page]}

    # -- watches -----------------------------------------------------------------------------------------------------

    def watch(self, request: Request, on_line: Callable[[bytes | None], None]) -> Watch:
        """Call `on_line` with each line from now on. Raises RefusedError."""
        place = self._place(request.path)
        watch = Watch(place, selector(request.query), on_line)
        since = int(request.query.get("resourceVersion") or self.server.revision)
        if since < self._oldest:
            on_line(self._error(410, "Expired", f"too old resource version: {since} ({self._oldest})"))
            on_line(None)
            return watch
        self.watches[watch] = None
        for revision, plural, old, new in list(self._history):
            if revision > since:
                watch.tell(plural, old, new)
        loop = asyncio.get_running_loop()
        end = float(request.query.get("timeoutSeconds", 1800))
        watch.timers.append(loop.call_later(end, self.end, watch, context=Context()))
        if request.query.get("allowWatchBookmarks") == "true":
            self._bookmark_later(watch)
        return watch

    def _bookmark_later(self, watch: Watch) -> None:
        def bookmark() -> None:
            if watch in self.watches:
                kind = KINDS[watch.place.plural]
                meta = {"resourceVersion": str(self.server.revision)}
                shown = {"kind": kind.name, "apiVersion": kind.group, "metadata": meta}
                watch.on_line(_encode({"type": "BOOKMARK", "object": shown}) + b"\n")
                self._bookmark_later(watch)

        loop = asyncio.get_running_loop()
        watch.timers[1:] = [loop.call_later(BOOKMARK_SECONDS, bookmark, context=Context())]

    def end(self, watch: Watch) -> None:
        """The server ends it."""
        if watch in self.watches:
            self.leave(watch)
            watch.on_line(None)

    def leave(self, watch: Watch) -> None:
        """Nobody listens to it any more."""
        self.watches.pop(watch, None)
        for timer in watch.timers:
            timer.cancel()

    def forget(self) -> None:
        """The history is compacted: whoever resumes from before now gets 410, and so do lists that go on."""
        self._history.clear()
        self._pages.clear()
        self._oldest = self.server.revision

    def error(self, watch: Watch, status: int) -> None:
        """Tell the watch of an error, and end it."""
        if watch in self.watches:
            watch.on_line(self._error(status, "InternalError", "no"))
            self.end(watch)

    def _error(self, status: int, reason: str, message: str) -> bytes:
        return _encode({"type": "ERROR", "object": failure(status, reason, message)}) + b"\n"

    def _changed(self, plural: str, old: Body | None, new: Body | None) -> None:
        self._history.append((self.server.revision, plural, old, new))
        if len(self._history) == HISTORY:
            self._oldest = self._history[0][0]
        for watch in list(self.watches):
            watch.tell(plural, old, new)


def within(place: _Place, body: Body) -> bool:
    """Whether the object is of that place's namespace."""
    return not place.namespace or body["metadata"].get("namespace", "") == place.namespace


def selector(query: Mapping[str, str]) -> Callable[[Body], bool]:
    """Labels that must be there, or be equal; and the name, which is the one field that is ever asked for."""
    wanted = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
    field, _, name = query.get("fieldSelector", "").partition("=")
    assert field in ("", "metadata.name"), f"unknown here: {field}"

    def selects(body: Body) -> bool:
        meta = body["metadata"]
        labels = meta.get("labels") or {}
        has_labels = all(key in labels and (not sign or labels[key] == value) for key, sign, value in wanted)
        return has_labels and name in ("", meta["name"])

    return selects


def _require_same(place: _Place, old: Body, given: Mapping[str, Any]) -> None:
    if given.get("uid") not in (None, old["metadata"]["uid"]):
        known = old["metadata"]["uid"]
        raise _conflict(place, f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {known}")
    if given.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
        raise _conflict(place)


def _conflict(place: _Place, *why: str) -> RefusedError:
    return RefusedError(409, "Conflict", conflict(f'{place.plural} "{place.name}"', *why))


def _shown(plural: str, body: Body) -> Body:
    kind = KINDS[plural]
    return {"apiVersion": kind.group, "kind": kind.name, **body}


def _ok(plural: str, body: Body, *, status: int = 200) -> Told:
    return status, _shown(plural, body)

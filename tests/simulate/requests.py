"""Requests, and the answers of an API server, for the real one and for the one in memory.

Each row has a request and its answer in short: the HTTP status, then the kind of the object or the reason of the error,
then the fields that matter (see `brief`). In a path or a body, `$name.field...` means a field of the answer to the last
request with `keep=name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_operator.build.resource_quota import build_resource_quota
from tests.api.jobs import make_job

Body = dict[str, Any]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
PODS = "/api/v1/namespaces/$ns/pods"
SERVICES = "/api/v1/namespaces/$ns/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/$ns/endpointslices"
JOBS = "/apis/elastic-pytorch.dev/v1beta1/namespaces/$ns/elasticpytorchjobs"
QUOTAS = "/api/v1/namespaces/$ns/resourcequotas"
EVENTS = "/apis/events.k8s.io/v1/namespaces/$ns/events"
JOB = "ElasticPyTorchJob"
FINALIZER = "example.com/keep"


@dataclass(frozen=True, slots=True)
class Row:
    """`method` is also LIST, or WATCH of what came since the version in the query; `soon`: asked until it is so.

    `strategic` is the kind of a PATCH.
    """

    method: str
    path: str
    answer: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    keep: str = ""
    soon: bool = False
    strategic: bool = False


def lease(name: str, holder: str = "one", **meta: Any) -> Body:
    """A lease."""
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **meta}}
    return {**head, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


def pod(name: str, *, owner: Body | None = None, **spec: Any) -> Body:
    """A pod that no scheduler looks at."""
    meta: Body = {"name": name} | ({"ownerReferences": [owner]} if owner else {})
    container = {"name": "main", "image": "local/none:1"}
    fields = {"schedulerName": "nobody", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": fields}


def owned_by(kept: str) -> Body:
    """A reference to the job that was kept under that name."""
    head = {"apiVersion": "elastic-pytorch.dev/v1beta1", "kind": "ElasticPyTorchJob", "controller": True}
    return {**head, "name": f"${kept}.metadata.name", "uid": f"${kept}.metadata.uid"}


def job(name: str) -> Body:
    """A job, in no namespace yet."""
    body = make_job(name)
    del body["metadata"]["namespace"]
    return body


def service(name: str, **meta: Any) -> Body:
    """A service."""
    spec = {"selector": {"a": "b"}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **meta}, "spec": spec}


def addresses(name: str, *found: str) -> Body:
    """An endpoint slice."""
    head = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name}}
    return {**head, "addressType": "IPv4", "endpoints": [{"addresses": list(found)}], "ports": []}


def quota(name: str, gpus: int, **meta: Any) -> Body:
    """A quota of plain pods."""
    body = build_resource_quota("x", {"nvidia.com/gpu": gpus}, classes=["elastic-pytorch-worker"])
    return {**body, "metadata": {"name": name, **meta}}


def of(kept: str, **changes: Any) -> Body:
    """Metadata that says which version of which object is meant."""
    return {"uid": f"${kept}.metadata.uid", "resourceVersion": f"${kept}.metadata.resourceVersion", **changes}


def conditions(**wanted: str) -> Body:
    """A status with these conditions."""
    return {"status": {"conditions": [{"type": name, "status": value} for name, value in wanted.items()]}}


def only(**wanted: str) -> Body:
    """Options of a deletion."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted}


WRITES = (
    Row("GET", f"{LEASES}/a", "404 NotFound"),
    Row("POST", LEASES, "201 Lease", lease("a"), keep="a"),
    Row("POST", LEASES, "409 AlreadyExists", lease("a")),
    Row("POST", LEASES.replace("$ns", "nowhere"), "404 NotFound", lease("a")),
    Row("POST", LEASES, "400 BadRequest", lease("a", namespace="elsewhere")),
    Row("POST", LEASES, "422 Invalid", lease("Not-A-Name")),
    Row("PUT", f"{LEASES}/a", "200 Lease same", lease("a", **of("a"))),
    Row("PUT", f"{LEASES}/a", "200 Lease changed", lease("a", "two", **of("a")), keep="b"),
    Row("PUT", f"{LEASES}/a", "409 Conflict", lease("a", "one", **of("a"))),
    Row("PUT", f"{LEASES}/a", "409 Conflict", lease("a", "one", **of("b", uid="another"))),
    Row("PUT", f"{LEASES}/a", "422 Invalid", lease("a", "three")),
    Row("PUT", f"{LEASES}/new", "201 Lease", lease("new")),
    Row("PATCH", f"{LEASES}/a/status", "404 NotFound", {"spec": {}}),
    Row("DELETE", f"{LEASES}/a", "409 Conflict", only(uid="another")),
    Row("DELETE", f"{LEASES}/a", "409 Conflict", only(resourceVersion="$a.metadata.resourceVersion")),
    Row("DELETE", f"{LEASES}/a", "200 Success", only(uid="$a.metadata.uid")),
    Row("DELETE", f"{LEASES}/a", "404 NotFound", only(uid="$a.metadata.uid")),
)

PODS_TABLE = (
    Row("POST", PODS, "201 Pod Pending", pod("a"), keep="a"),
    Row("POST", PODS, "409 AlreadyExists", pod("a")),
    Row("POST", PODS, "403 Forbidden", pod("b", priorityClassName="no-such-class")),
    Row("PATCH", f"{PODS}/a", "200 Pod Pending same", {"metadata": {"labels": None}}),
    Row("PATCH", f"{PODS}/a", "200 Pod Pending changed noted=x", noted := {"metadata": {"annotations": {"note": "x"}}}),
    Row("PATCH", f"{PODS}/a", "409 Conflict", {"metadata": of("a", annotations={"note": "y"})}),
    Row("PATCH", f"{PODS}/a", "200 Pod Pending same noted=x", noted, keep="a"),
    Row("PATCH", f"{PODS}/a", "422 Invalid", {"metadata": of("a", uid="another", annotations={"note": "y"})}),
    Row("PATCH", f"{PODS}/a", "200 Pod Pending same noted=x", {"status": {"phase": "Running"}}),
    Row(
        "PATCH",
        f"{PODS}/a/status",
        "200 Pod Pending changed noted=y nominated=n",
        {"metadata": of("a", annotations={"note": "y"}), "status": {"nominatedNodeName": "n"}},
    ),
    Row("PATCH", f"{PODS}/a/status", "409 Conflict", {"metadata": of("a"), "status": {"nominatedNodeName": None}}),
    Row("PATCH", f"{PODS}/a/status", "422 Invalid", {"metadata": {"uid": "another"}, "status": {"phase": "Failed"}}),
    Row(
        "PATCH", f"{PODS}/a/status", "409 Conflict", {"metadata": of("a", uid="another"), "status": {"phase": "Failed"}}
    ),
    Row("PATCH", f"{PODS}/a/status", "200 Pod Pending changed noted=y", {"status": {"nominatedNodeName": None}}),
    Row("PATCH", f"{PODS}/a/status", "200 Pod Pending same noted=y", {"spec": {"schedulerName": "other"}}),
    Row("PATCH", f"{PODS}/a/status", "200 Pod Pending changed noted=y A=True", conditions(A="True")),
    Row(
        "PATCH",
        f"{PODS}/a/status",
        "200 Pod Pending changed noted=y A=True B=True",
        conditions(B="True"),
        strategic=True,
    ),
    Row(
        "PATCH",
        f"{PODS}/a/status",
        "200 Pod Pending changed noted=y A=False B=True",
        conditions(A="False"),
        strategic=True,
    ),
    Row(
        "PATCH", f"{PODS}/a/status", "200 Pod Pending same noted=y A=False B=True", conditions(B="True"), strategic=True
    ),
    Row(
        "PATCH",
        f"{PODS}/a/status",
        "200 Pod Pending changed A=False B=True nominated=n",
        {"metadata": {"annotations": {"note": None}}, "status": {"nominatedNodeName": "n"}},
        strategic=True,
    ),
    Row(
        "PATCH",
        f"{PODS}/a/status",
        "200 Pod Pending changed noted=y B=True",
        {
            "metadata": {"annotations": {"note": "y"}},
            "status": {"nominatedNodeName": None, **conditions(B="True")["status"]},
        },
    ),
    Row("PATCH", f"{PODS}/a/status", "409 Conflict", {"metadata": of("a"), **conditions(B="False")}, strategic=True),
    Row(
        "PATCH", f"{PODS}/a/status", "422 Invalid", {"metadata": {"uid": "x"}, **conditions(B="False")}, strategic=True
    ),
    Row("PATCH", f"{PODS}/a/status", "200 Pod Pending changed noted=y", {"status": {"conditions": None}}),
    Row("DELETE", f"{PODS}/a", "409 Conflict", only(uid="another")),
    Row("DELETE", f"{PODS}/a", "200 Pod Pending noted=y deleting grace=0", only(uid="$a.metadata.uid")),
    Row("GET", f"{PODS}/a", "404 NotFound"),
    # Bound to a node: it gets its time.
    Row("POST", PODS, "201 Pod Pending", pod("bound", nodeName="nowhere"), keep="bound"),
    Row("DELETE", f"{PODS}/bound", "200 Pod Pending changed deleting grace=30", only(uid="$bound.metadata.uid")),
    Row("GET", f"{PODS}/bound", "200 Pod Pending same deleting grace=30"),
    Row("DELETE", f"{PODS}/bound", "200 Pod Pending same deleting grace=30", only(uid="$bound.metadata.uid")),
    Row("POST", PODS, "409 AlreadyExists", pod("bound")),
    Row("PATCH", f"{PODS}/bound", "200 Pod Pending noted=x deleting grace=30", noted),
    Row("GET", f"{PODS}/bound", "200 Pod Pending same noted=x deleting grace=30"),
    Row("DELETE", f"{PODS}/bound", "200 Pod Pending noted=x deleting grace=0", {"gracePeriodSeconds": 0}),
    Row("GET", f"{PODS}/bound", "404 NotFound"),
    # One that has ended is gone at once.
    Row("POST", PODS, "201 Pod Pending", pod("ended", nodeName="nowhere")),
    Row("PATCH", f"{PODS}/ended/status", "200 Pod Failed changed", {"status": {"phase": "Failed"}}),
    Row("DELETE", f"{PODS}/ended", "200 Pod Failed deleting grace=0", {}),
    Row("GET", f"{PODS}/ended", "404 NotFound"),
    # A finalizer keeps it.
    Row("POST", PODS, "201 Pod Pending", pod("kept", nodeName="nowhere")),
    Row("PATCH", f"{PODS}/kept", "200 Pod Pending changed kept", {"metadata": {"finalizers": [FINALIZER]}}),
    Row("DELETE", f"{PODS}/kept", "200 Pod Pending changed kept deleting grace=0", {"gracePeriodSeconds": 0}),
    Row("GET", f"{PODS}/kept", "200 Pod Pending same kept deleting grace=0"),
    Row("PATCH", f"{PODS}/kept", "200 Pod Pending deleting grace=0", {"metadata": {"finalizers": None}}),
    Row("GET", f"{PODS}/kept", "404 NotFound"),
)

OTHERS = (
    Row("POST", JOBS, "201 ElasticPyTorchJob generation=1", {**job("a"), "status": {"replicas": 7}}, keep="a"),
    Row(
        "PATCH",
        f"{JOBS}/a/status",
        "200 ElasticPyTorchJob changed generation=1 replicas=3",
        {"metadata": {"resourceVersion": "$a.metadata.resourceVersion"}, "status": {"replicas": 3}},
        keep="b",
    ),
    Row("PATCH", f"{JOBS}/a/status", "409 Conflict", {"metadata": of("a"), "status": {"replicas": 4}}),
    Row("PATCH", f"{JOBS}/a/status", f"200 {JOB} same generation=1 replicas=3", {"status": {"replicas": 3}}),
    Row("PATCH", f"{JOBS}/a/status", f"200 {JOB} same generation=1 replicas=3", {"spec": {"maxReplicas": 9}}),
    Row("PATCH", f"{JOBS}/a", f"200 {JOB} same generation=1 replicas=3", {"status": {"replicas": 5}}),
    Row("PATCH", f"{JOBS}/a", f"200 {JOB} changed generation=2 replicas=3", {"spec": {"maxReplicas": 5}}),
    Row(
        "PATCH",
        f"{JOBS}/a",
        f"200 {JOB} changed generation=2 replicas=3",
        {"metadata": {"labels": {"x": "y"}}},
    ),
    Row("PUT", f"{JOBS}/a", "422 Invalid", job("a")),
    # What it owns goes with it.
    Row("POST", PODS, "201 Pod Pending", pod("owned", owner=owned_by("a"))),
    Row(
        "POST",
        SERVICES,
        "201 Service address",
        {**service("owned"), "metadata": {"name": "owned", "ownerReferences": [owned_by("a")]}},
    ),
    Row("DELETE", f"{JOBS}/a", "409 Conflict", only(uid="another")),
    Row("DELETE", f"{JOBS}/a", "200 Success", {**only(uid="$a.metadata.uid"), "propagationPolicy": "Background"}),
    Row("GET", f"{JOBS}/a", "404 NotFound"),
    Row("GET", f"{PODS}/owned", "404 NotFound", soon=True),
    Row("GET", f"{SERVICES}/owned", "404 NotFound", soon=True),
    # Services and where they lead to.
    Row("POST", SERVICES, "201 Service address", service("s"), keep="s"),
    Row("DELETE", f"{SERVICES}/s", "200 Service address", only(uid="$s.metadata.uid")),
    Row("POST", SLICES, "201 EndpointSlice", addresses("e", "10.0.0.1"), keep="e"),
    Row("PUT", f"{SLICES}/e", "200 EndpointSlice changed", addresses("e", "10.0.0.2"), keep="f"),
    Row("PUT", f"{SLICES}/e", "409 Conflict", {**addresses("e", "10.0.0.3"), "metadata": {"name": "e", **of("e")}}),
    Row("DELETE", f"{SLICES}/e", "200 Success", {}),
)

SINCE_C = {"resourceVersion": "$c.metadata.resourceVersion"}

LISTS = (
    *(Row("POST", LEASES, "201 Lease", lease(name, labels={"of": name}), keep=name) for name in "abc"),
    Row("LIST", LEASES, "200 LeaseList a,b more", query={"limit": "2"}, keep="page"),
    Row("LIST", LEASES, "200 LeaseList c", query={"limit": "2", "continue": "$page.metadata.continue"}),
    Row("LIST", LEASES, "200 LeaseList a,b,c", query={"labelSelector": "of"}),
    Row("LIST", LEASES, "200 LeaseList b", query={"labelSelector": "of=b"}),
    Row("PATCH", f"{LEASES}/b", "200 Lease changed", {"metadata": {"labels": {"of": None}}}),
    Row("LIST", LEASES, "200 LeaseList a,c", query={"labelSelector": "of"}),
    Row("DELETE", f"{LEASES}/a", "200 Success", {}),
    Row("PATCH", f"{LEASES}/b", "200 Lease changed", {"metadata": {"labels": {"of": "b"}}}),
    Row("LIST", LEASES, "200 LeaseList b", query={"fieldSelector": "metadata.name=b"}),
    Row("WATCH", LEASES, "200 MODIFIED b,MODIFIED b", query={**SINCE_C, "fieldSelector": "metadata.name=b"}),
    Row(
        "WATCH", LEASES, "200 MODIFIED b,DELETED a,MODIFIED b", query={"resourceVersion": "$c.metadata.resourceVersion"}
    ),
    Row(
        "WATCH",
        LEASES,
        "200 DELETED b,DELETED a,ADDED b",
        query={**SINCE_C, "labelSelector": "of"},
    ),
)

# The controller manager writes the status of a quota soon after it is made: no row asks for its version.
QUOTAS_TABLE = (
    Row("POST", QUOTAS, "201 ResourceQuota", quota("a", 2), keep="a"),
    Row("POST", QUOTAS, "409 AlreadyExists", quota("a", 2)),
    Row("PUT", f"{QUOTAS}/a", "200 ResourceQuota", quota("a", 1)),
    Row("PUT", f"{QUOTAS}/a", "409 Conflict", quota("a", 3, resourceVersion="$a.metadata.resourceVersion")),
    Row("PUT", f"{QUOTAS}/b", "404 NotFound", quota("b", 1)),
    Row("LIST", QUOTAS, "200 ResourceQuotaList a", query={"fieldSelector": "metadata.name=a"}),
    Row("LIST", QUOTAS, "200 ResourceQuotaList ", query={"fieldSelector": "metadata.name=b"}),
    Row("DELETE", f"{QUOTAS}/a", "409 Conflict", only(uid="another")),
    Row("DELETE", f"{QUOTAS}/a", "200 ResourceQuota", only(uid="$a.metadata.uid")),
    Row("DELETE", f"{QUOTAS}/a", "404 NotFound", only(uid="$a.metadata.uid")),
)

TABLES = {"writes": WRITES, "pods": PODS_TABLE, "others": OTHERS, "lists": LISTS, "quotas": QUOTAS_TABLE}

Ask = Callable[..., tuple[int, Any]]
"""Method, path, query, body and `strategic` to HTTP status and JSON; of a watch the list of its events."""


class Asked:
    """What was answered so far in one namespace of one server."""

    def __init__(self, namespace: str, ask: Ask) -> None:
        self._kept: dict[str, Any] = {"ns": namespace}
        self._versions: dict[str, str] = {}
        self._ask = ask

    def brief(self, row: Row) -> str:
        """The answer to the row's request, in short."""
        path, query, body = (self._filled(part) for part in (row.path, dict(row.query), row.body))
        method = "GET" if row.method in ("LIST", "WATCH") else row.method
        if row.method == "WATCH":
            query |= {"watch": "true", "timeoutSeconds": "1"}
        status, answer = self._ask(method, path, query, body, strategic=row.strategic)
        if row.keep:
            self._kept[row.keep] = answer
        return " ".join([str(status), *self._words(row, answer)])

    def _words(self, row: Row, answer: Any) -> list[str]:
        if row.method == "WATCH":
            return [",".join(map(_event, answer))]
        if not isinstance(answer, dict):
            return ["-"]
        if answer.get("kind") == "Status":
            return [answer.get("reason") or answer.get("status") or "-"]
        if "items" in answer:
            names = ",".join(sorted(item["metadata"]["name"] for item in answer["items"]))
            return [answer["kind"], names, *(["more"] if answer["metadata"].get("continue") else [])]
        return [answer["kind"], *self._of_object(row, answer)]

    def _of_object(self, row: Row, answer: Body) -> list[str]:
        meta, status = answer["metadata"], answer.get("status", {})
        version, before = meta.get("resourceVersion", ""), self._versions.get(meta["uid"])
        self._versions[meta["uid"]] = version
        gone = row.method == "DELETE" and meta.get("deletionGracePeriodSeconds") == 0 and not meta.get("finalizers")
        last = row.method == "PATCH" and "deletionTimestamp" in meta and not meta.get("finalizers")
        words = [status["phase"]] if "phase" in status else []
        if before is not None and not gone and not last and answer["kind"] not in ("Service", "ResourceQuota"):
            words.append("same" if version == before else "changed")
        words += [f"noted={meta['annotations']['note']}"] if "note" in (meta.get("annotations") or {}) else []
        words += ["kept"] if FINALIZER in meta.get("finalizers", ()) else []
        words += ["deleting"] if "deletionTimestamp" in meta else []
        grace = meta.get("deletionGracePeriodSeconds")
        words += [f"grace={grace}"] if grace is not None else []
        conditions = [one for one in status.get("conditions", ()) if len(one["type"]) == 1]
        words += [f"{one['type']}={one['status']}" for one in sorted(conditions, key=lambda one: one["type"])]
        words += [f"nominated={status['nominatedNodeName']}"] if status.get("nominatedNodeName") else []
        words += [f"generation={meta['generation']}"] if answer["kind"] == "ElasticPyTorchJob" else []
        words += [f"replicas={status['replicas']}"] if "replicas" in status else []
        return words + (["address"] if answer.get("spec", {}).get("clusterIP") else [])

    def _filled(self, part: Any) -> Any:
        if isinstance(part, str):
            return re.sub(r"\$([a-z]+)((?:\.\w+)*)", self._look_up, part)
        if isinstance(part, dict):
            return {key: self._filled(value) for key, value in part.items()}
        return [self._filled(value) for value in part] if isinstance(part, list) else part

    def _look_up(self, match: re.Match[str]) -> str:
        found = self._kept[match[1]]
        for step in match[2].split(".")[1:]:
            found = found[step]
        return str(found)


def _event(event: Body) -> str:
    if event["type"] == "ERROR":
        return f"ERROR {event['object']['code']} {event['object']['reason']}"
    return f"{event['type']} {event['object']['metadata']['name']}"

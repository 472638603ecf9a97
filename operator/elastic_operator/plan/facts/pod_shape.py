"""Reads a pod template: kube-scheduler's requirements of a node for a pod made from the template.

The planner cannot foresee the effect of inter-pod rules, volumes tied to places, claims and other schedulers. A shape
with one of these is unpinnable, with the reason in words (10). `fit` and `node_board` find the nodes for a shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from elastic_api.template import requests_of
from elastic_operator.memory import EMPTY_SET
from elastic_operator.plan.facts.gpus import count_gpus
from elastic_operator.plan.facts.node import HostPort, host_port
from elastic_operator.plan.facts.requirements import PodShape, Toleration

VolumeFacts = Mapping[str, Literal["bound", "unbound", "zonal"]]
"""Claim name -> "bound" (to a volume reachable from every node), "unbound", or "zonal" (its volume has node affinity).
If a claim has no entry, it does not exist (yet).
"""

DEFAULT_SCHEDULER = "default-scheduler"
NAME_FIELD = "metadata.name"


def excluding_nodes(shape: PodShape, nodes: Iterable[str]) -> PodShape:
    """The shape without these nodes: no pod of it may be placed on them (137)."""
    avoided = frozenset(nodes)
    return replace(shape, avoided_nodes=avoided) if avoided else shape


def with_node_name(terms: Iterable[Mapping[str, Any]], node: str) -> list[Mapping[str, Any]]:
    """The nodeSelectorTerms, each with a further requirement: the name of that node. Without terms, one term with only
    this requirement.

    Terms are alternatives, so each of them gets the requirement. An empty term selects no node: it stays empty.
    """
    field = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    found = list(terms)
    if not found:
        return [{"matchFields": [field]}]
    return [
        {**term, "matchFields": [*(term.get("matchFields") or ()), field]} if any(term.values()) else term
        for term in found
    ]


def shape_of(template: Mapping[str, Any], *, gpu_resources: Sequence[str], volumes: VolumeFacts) -> PodShape:
    """The requirements of a pod of `template`, a PodTemplateSpec that `api` has accepted.

    `requests` includes `pods: 1`.
    """
    pod = template["spec"]
    requests = {**requests_of(template), "pods": 1}
    because = next(_unknowable(pod, volumes), "")
    required = _nested(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return PodShape(
        requests=requests,
        gpus=count_gpus(requests, gpu_resources),
        node_selector=dict(pod.get("nodeSelector") or {}),
        affinity=tuple(required.get("nodeSelectorTerms") or ()),
        tolerations=tuple(
            Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")
            for t in pod.get("tolerations") or []
        ),
        host_ports=frozenset(host_ports(pod)) or EMPTY_SET,
        pinnable=not because,
        unpinned_because=because,
    )


def host_ports(pod: Mapping[str, Any]) -> Iterator[HostPort]:
    """The node's ports that containers and sidecars use. With hostNetwork, every container port is one."""
    sidecars = [c for c in pod.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    for container in [*pod["containers"], *sidecars]:
        for port in container.get("ports") or []:
            number = port.get("hostPort") or (port.get("containerPort") if pod.get("hostNetwork") else None)
            if number:
                yield host_port(port.get("hostIP") or "", port.get("protocol") or "", number)


def _unknowable(pod: Mapping[str, Any], volumes: VolumeFacts) -> Iterator[str]:
    """Reasons why the planner cannot foresee the pod's place, the most decisive first."""
    scheduler = pod.get("schedulerName") or DEFAULT_SCHEDULER
    if scheduler != DEFAULT_SCHEDULER:
        yield f"schedulerName is {scheduler}"
    if pod.get("nodeName"):
        yield f"nodeName is set to {pod['nodeName']}"
    for kind in ("podAffinity", "podAntiAffinity"):
        if _nested(pod, "affinity", kind).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield f"it has required {kind}"
    for constraint in pod.get("topologySpreadConstraints") or []:
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield f"it has a DoNotSchedule topologySpreadConstraint on {constraint.get('topologyKey', '')}"
    if pod.get("resourceClaims"):
        yield "it has resourceClaims"
    for volume in pod.get("volumes") or []:
        if _nested(volume, "ephemeral").get("volumeClaimTemplate"):
            yield f"its volume {volume.get('name', '')} is claimed per pod"
        claim = _nested(volume, "persistentVolumeClaim").get("claimName")
        fact = volumes.get(claim, "unbound") if claim else "bound"
        if fact == "unbound":
            yield f"PersistentVolumeClaim {claim} is not bound"
        if fact == "zonal":
            yield f"the volume of PersistentVolumeClaim {claim} is reachable from some nodes only"


def _nested(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at `path`, empty where any part of the path is absent or null."""
    for key in path:
        value = value.get(key) or {}
    return value

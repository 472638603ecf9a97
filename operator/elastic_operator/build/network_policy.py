"""The NetworkPolicy of a job: its pods among themselves, the operator to their launchers, the settings' additions.

Pods are selected by the job's uid, so no other job of that name is meant. Traffic by the job's Service reaches the
master from a pod, or from the master's own node, which no policy keeps out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_operator.build.names import Owner, owned_metadata, service_name
from elastic_worker.contract import LABEL_JOB_UID, STATUS_PORT

OPERATOR_LABELS = {"app.kubernetes.io/name": "elastic-operator"}
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
DNS_PORT = 53

Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobNetwork:
    """The common part of all jobs' policies: the operator's namespace, and further rules.

    `egress` is None if pods may connect to anything.
    """

    operator_namespace: str
    ingress: tuple[Rule, ...] = ()
    egress: tuple[Rule, ...] | None = None


def build_network_policy(job: Owner, network: JobNetwork) -> dict[str, Any]:
    """The NetworkPolicy `NAME-master`, by the name of the job's Service."""
    own = {"podSelector": {"matchLabels": {LABEL_JOB_UID: job.uid}}}
    operator = {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: network.operator_namespace}},
        "podSelector": {"matchLabels": OPERATOR_LABELS},
    }
    asks = {"from": [operator], "ports": [{"protocol": "TCP", "port": STATUS_PORT}]}
    spec: dict[str, Any] = {
        **own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [own]}, asks, *map(dict, network.ingress)],
    }
    if network.egress is not None:
        # To any DNS server: clusters use different ones, and one may have an address of a node.
        dns = {"ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]}
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [{"to": [own]}, dns, *map(dict, network.egress)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owned_metadata(job, service_name(job.name)),
        "spec": spec,
    }

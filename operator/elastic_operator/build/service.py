"""The Service in front of a job's master, and the EndpointSlice with the master's address (6).

The Service's ClusterIP is the rendezvous address: it is known before any pod runs and stays when the master is
replaced. The Service has no selector; the operator names the master's address itself. So neither a user's pod with our
labels nor an old master that returns from a network partition gets any traffic.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from elastic_operator.build.names import Owner, owned_metadata, service_name
from elastic_worker.contract import GROUP, MASTER_PORT

PORT_NAME = "rendezvous"


def build_service(job: Owner, *, port: int = MASTER_PORT) -> dict[str, Any]:
    """The Service `NAME-master`; the API server gives it a ClusterIP of the cluster's first family.

    `port` is the job's, as from `api.ports.master_port`.
    """
    ports = [{"name": PORT_NAME, "protocol": "TCP", "port": port, "targetPort": port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(job, service_name(job.name)),
        "spec": {"type": "ClusterIP", "ports": ports},
    }


def build_endpoint_slice(
    job: Owner, *, service_ip: str, pod_ip: str | None, node: str = "", port: int = MASTER_PORT
) -> dict[str, Any]:
    """The EndpointSlice that leads the Service at `service_ip` to the master at `pod_ip` on `node`, or nowhere while
    the master has no address.

    The node must be named (7): kube-proxy lets a pod reach itself through a Service only if it knows the endpoint as
    one of its own node's, and the master, which hosts the store, is its first client.

    The address family is the Service's, because a proxy looks at no other. The API server allows no later change of it.
    The endpoint is always ready: workers wait there for a rendezvous that opens before any readiness probe passes.
    """
    conditions = {"ready": True, "serving": True, "terminating": False}
    metadata = owned_metadata(job, service_name(job.name))
    metadata["labels"] |= {
        "kubernetes.io/service-name": service_name(job.name),
        "endpointslice.kubernetes.io/managed-by": GROUP,
    }
    endpoint = {"addresses": [pod_ip], "conditions": conditions} | ({"nodeName": node} if node else {})
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": f"IPv{ip_address(service_ip).version}",
        "endpoints": [endpoint] if pod_ip else [],
        "ports": [{"name": PORT_NAME, "protocol": "TCP", "port": port}],
    }

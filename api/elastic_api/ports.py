"""The ports that the pods of a job listen on: the same in all jobs, or ports of the job's own (122).

Pods on the node's network (hostNetwork) share its ports. There the second of two masters could not listen, and its
launcher would dial the other job's coordinator. A job's own ports are derived from its uid. Two jobs may have the same
ports, so the master's pod declares them: the planner and kube-scheduler then keep masters off a node where they are in
use.

The job's Service says which ports the job has. It is created with the first pods and stays, so a job that began under
an older release keeps the ports that its running pods know.
"""

from __future__ import annotations

import hashlib

from elastic_api.job import JobSpec
from elastic_worker.contract import MASTER_PORT, ROLE_MASTER

FIRST_PORT, MAX_JOBS, PORTS_OF_A_JOB = 20_000, 2_000, 4
"""Ports up to 27999: below the API server's ports for Services (30000), and the kernel's ports for connections
(32768).
"""


def master_port(uid: str, spec: JobSpec) -> int:
    """The port at which the pods of the job with that uid meet, for a new Service."""
    return _own_port(uid) if _is_on_the_nodes_network(spec) else MASTER_PORT


def status_port(port: int, role: str) -> int:
    """The status port of a launcher of `role`, if the job's master is at `port`.

    Workers of jobs with ports of their own share a third port, which no pod declares. Several such workers may run on a
    node, and the first one gets the port.
    """
    return port + 1 if role == ROLE_MASTER or port == MASTER_PORT else port + 2


def declared_ports(port: int, role: str, *, is_elastic: bool) -> tuple[int, ...]:
    """The node's ports that a pod of `role` declares, if the job's master is at `port`."""
    if role != ROLE_MASTER or port == MASTER_PORT:
        return ()
    return (port, status_port(port, role)) if is_elastic else (port,)


def _is_on_the_nodes_network(spec: JobSpec) -> bool:
    return bool(spec.template_of(ROLE_MASTER)["spec"].get("hostNetwork"))


def _own_port(uid: str) -> int:
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big")
    return FIRST_PORT + PORTS_OF_A_JOB * (number % MAX_JOBS)

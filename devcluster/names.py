"""Derives every name, address, port and path of a cluster from its NAME, so that two clusters never collide.

A cluster's links and addresses are in its own network namespaces, so every cluster may use the same ones; names that
the whole machine sees (the loopback port, cgroups, paths, marks of processes) contain the name.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache
from devcluster.errors import DevclusterError

DEFAULT_NAME = "dev"
NAME_RULE = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")
NODE_RULE = re.compile(r"n([1-9][0-9]{0,2})")
MAX_NODES = 200

BRIDGE = "br0"
BRIDGE_ADDRESS = "10.200.0.1"
BRIDGE_PREFIX_LENGTH = 16
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
API_PORT = 6443

# The search for a loopback port begins here, below the kernel's ephemeral ports (32768 and up).
FIRST_PORT = 20000
PORTS = 10000


def check_name(name: str) -> str:
    """Return `name`. Raises DevclusterError if it cannot be a cluster's name."""
    if NAME_RULE.fullmatch(name) is None:
        raise DevclusterError(
            f"name={name!r} cannot name a cluster: write at most 20 of a-z, 0-9 and -, beginning with a letter"
        )
    return name


def first_port(name: str) -> int:
    """The loopback port that the cluster tries first; the same for a name at any time."""
    return FIRST_PORT + zlib.crc32(name.encode()) % PORTS


def node_name(number: int) -> str:
    """The name of a node: n1 for 1."""
    return f"n{number}"


def node_number(node: str) -> int:
    """The number of a node: 2 for n2. Raises DevclusterError if `node` is no node's name."""
    match = NODE_RULE.fullmatch(node)
    if match is None or int(match[1]) > MAX_NODES:
        raise DevclusterError(f"node={node!r} is not a node: write n1, n2, ... up to n{MAX_NODES}")
    return int(match[1])


def node_address(number: int) -> str:
    """The node's address on the cluster's bridge."""
    return f"10.200.1.{number}"


def node_pod_cidr(number: int) -> str:
    """The addresses of the pods of a node."""
    return f"10.244.{number}.0/24"


def node_link(node: str) -> str:
    """The link of the node on the bridge's side."""
    return f"port-{node}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths and names of one cluster."""

    name: str

    @property
    def folder(self) -> Path:
        """The folder of all files of the cluster."""
        return cache.root() / "clusters" / check_name(self.name)

    @property
    def logs(self) -> Path:
        """The folder with one log for each process; it stays until the next cluster of this name."""
        return self.folder / "logs"

    @property
    def pki(self) -> Path:
        """The folder of keys, certificates and the programs' kubeconfigs."""
        return self.folder / "pki"

    @property
    def shared(self) -> Path:
        """The folder that pods on all nodes see through shared claims."""
        return self.folder / "shared"

    @property
    def loaded(self) -> Path:
        """The folder that records which archives the nodes have."""
        return self.folder / "loaded"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, through the loopback port."""
        return self.folder / "kubeconfig"

    @property
    def state_file(self) -> Path:
        """The settings of the cluster; its presence shows that there is one."""
        return self.folder / "cluster.json"

    def node(self, node: str) -> Path:
        """The folder with a node's disk."""
        return self.folder / "nodes" / node

    def cgroup(self, node: str) -> str:
        """The cgroup, below the root of each hierarchy, that holds the node's pods."""
        return f"elastic-pytorch-{self.name}-{node}"

    def mark(self, part: str) -> str:
        """The value of the environment variable that marks the processes of a part, such as `n1/kubelet`."""
        return f"{self.name}/{part}"

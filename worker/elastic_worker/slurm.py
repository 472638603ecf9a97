"""Starts the launcher on a node of a Slurm job. Like `torchrun`, it is started once on each node:

    srun --nodes=1 --ntasks=1 -w "$node" python3 -m elastic_worker.slurm --nnodes 1:2 --nproc_per_node 1 train.py

A node of the allocation takes the place of a pod. There is no operator: the first node is the master, and its
membership is all nodes of the allocation for as long as the job runs. No other master follows while it runs. So the
nodes that can reach it train on, even if they are the smaller part of the group (134). A job that Slurm starts again
has a later master.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic_worker import __main__ as launcher
from elastic_worker import contract, flags

ANY_PORT = 9
"""A port to which nothing is sent: a connected datagram socket shows its own address."""


class SlurmError(ValueError):
    """The launcher cannot run as this task; the message says what to write."""


@dataclass(frozen=True)
class Node:
    """One node of the job, `index` of `names`; `restarts`: how often Slurm has started the job again."""

    names: tuple[str, ...]
    index: int
    job: str
    restarts: int

    @property
    def name(self) -> str:
        """The node's name in Slurm."""
        return self.names[self.index]

    @property
    def peer(self) -> str:
        """A node that this one must reach: the master; for the master, another node; its own name if it is alone."""
        return self.names[0] if self.index else self.names[min(1, len(self.names) - 1)]


def main() -> int:
    """Run this node's part of the job; returns its exit code."""
    try:
        fewest, words = split(sys.argv[1:])
        node = find(os.environ, hostnames(_text(os.environ, "SLURM_JOB_NODELIST")))
        membership = json.dumps(membership_of(node, fewest))
        os.environ.update(environment(node, os.environ, address=address_towards(node.peer)))
    except (SlurmError, flags.UsageError, OSError) as error:
        print(f"elastic_worker.slurm: {error}", file=sys.stderr)
        return contract.EXIT_DO_NOT_RETRY
    sys.argv[1:] = words
    with tempfile.NamedTemporaryFile("w", prefix="elastic-wish-") as file:
        file.write(membership)
        file.flush()
        os.environ[contract.ENV_MEMBERSHIP_FILE] = file.name
        return launcher.main()


def split(argv: Sequence[str]) -> tuple[int, list[str]]:
    """Return the minimum of --nnodes, and the launcher's words, from torchrun's. Raises SlurmError, UsageError."""
    options, program = flags.read(argv)
    fewest = 1
    for option in options:
        if option.name == "--nnodes":
            least, _, most = option.value.partition(":")
            is_range = least.isdigit() and (most or least).isdigit() and 1 <= int(least) <= int(most or least)
            if not is_range:
                raise SlurmError(f"--nnodes={option.value}: write a number of nodes, or the least and the most, as 1:2")
            fewest = int(least)
    words = [word for option in options if option.name != "--nnodes" for word in option.words]
    return fewest, ["--", *words, "--", *program]


def find(environ: Mapping[str, str], names: Sequence[str]) -> Node:
    """This node's place among the nodes of the job. Raises SlurmError."""
    if environ.get("SLURM_LOCALID", "0") != "0":
        raise SlurmError("a second task on this node: write --ntasks-per-node=1, and --nproc_per_node for processes")
    if _number(environ, "SLURM_HET_SIZE", 1) > 1:
        # Each part has its own list of nodes, and would form a separate group.
        raise SlurmError("the parts of a heterogeneous job do not train together: submit a job for one kind of node")
    name = _text(environ, "SLURMD_NODENAME")
    if name not in names:
        raise SlurmError(f"SLURMD_NODENAME={name} is none of the job's nodes: {', '.join(names)}")
    job = "-".join((environ.get("SLURM_CLUSTER_NAME", "slurm"), _text(environ, "SLURM_JOB_ID")))
    return Node(tuple(names), names.index(name), job, _number(environ, "SLURM_RESTART_COUNT", 0))


def membership_of(node: Node, fewest: int) -> dict[str, object]:
    """The membership that the operator would write on the master's pod. Raises SlurmError."""
    if fewest > len(node.names):
        raise SlurmError(f"--nnodes asks for {fewest} nodes, but the job has {len(node.names)}")
    members = [{"name": name, "uid": name} for name in node.names]
    return {"wish": 1, "members": members, "min": fewest, "max": len(node.names), "successor": False}


def environment(node: Node, environ: Mapping[str, str], *, address: str) -> dict[str, str]:
    """The variables that the operator gives a pod; `address` is this node's. Raises SlurmError."""
    if not environ.get(contract.ENV_TOKEN):
        command = "export ELASTIC_TOKEN=$(cat /proc/sys/kernel/random/uuid)"
        raise SlurmError(f"{contract.ENV_TOKEN} is not set: write `{command}` before srun, so that no other job joins")
    port = _number(environ, contract.ENV_MASTER_PORT, contract.MASTER_PORT)
    values = {
        contract.ENV_JOB_UID: node.job,
        contract.ENV_INCARNATION: 1 + node.restarts,
        contract.ENV_MASTER_EPOCH: 1 + node.restarts,
        contract.ENV_POD_NAME: node.name,
        contract.ENV_POD_UID: node.name,
        contract.ENV_LOCAL_ADDR: address,
        contract.ENV_ROLE: contract.ROLE_WORKER if node.index else contract.ROLE_MASTER,
        contract.ENV_INDEX: max(0, node.index - 1),
        contract.ENV_MASTER_ADDR: node.names[0],
        contract.ENV_MASTER_PORT: port,
        contract.ENV_STATUS_PORT: port + 1,
        contract.ENV_NPROC: environ.get("SLURM_GPUS_ON_NODE") or 1,
    }
    return {name: str(value) for name, value in values.items()}


def hostnames(nodelist: str) -> list[str]:
    """The nodes of a list such as `node[1-4]`. Raises OSError, SlurmError."""
    done = subprocess.run(["scontrol", "show", "hostnames", nodelist], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SlurmError(f"scontrol cannot read SLURM_JOB_NODELIST={nodelist}: {done.stderr.strip()}")
    return done.stdout.split()


def address_towards(peer: str) -> str:
    """This node's own address on the way to another one. Raises SlurmError.

    The node's host name may resolve to a loopback address, as Debian's installer writes it.
    """
    try:
        (family, kind, _, _, place), *_ = socket.getaddrinfo(peer, ANY_PORT, type=socket.SOCK_DGRAM)
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SlurmError(f"the node {peer} cannot be reached by its name: {error}") from error


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name) or str(default)
    if not value.isdigit():
        raise SlurmError(f"{name}={value}: write a whole number")
    return int(value)


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SlurmError(f"{name} is not set: start this by srun, in a job of Slurm")
    return value


if __name__ == "__main__":
    sys.exit(main())

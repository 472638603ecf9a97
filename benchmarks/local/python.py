"""The python that trains, and the environment of its processes."""

from __future__ import annotations

import os
from functools import cache

from devcluster import torchtree
from devcluster.progress import Progress

# The torch tree is installed for the base image's Python, which is Debian's.
PYTHON = "/usr/bin/python3.11"


def environ() -> dict[str, str]:
    """The environment of a process that uses loopback only, and computes on one core."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ELASTIC_", "PET_"))}
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return kept | loopback | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@cache
def torch_environ() -> dict[str, str]:
    """The same environment for a process that finds torch."""
    return environ() | {"PYTHONPATH": str(torchtree.ensure(Progress()))}

"""These tests import torch themselves: from the tree that ELASTIC_TORCH_TREE names, the newest one if nobody does.

`make check` leaves this folder out, as a new machine has no torch.
"""

import os
import sys

import pytest

from devcluster import torchtree
from devcluster.progress import Progress

TREE = os.environ.get("ELASTIC_TORCH_TREE", torchtree.DEFAULT_TREE)
sys.path.append(str(torchtree.ensure(Progress(quiet=True), tree=TREE)))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def pytest_collection_modifyitems(items):
    """They need torch's tree, which the local cluster installs into its cache."""
    for item in items:
        if "tests/worker/equality" in item.path.as_posix():
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.programs)
            item.add_marker(pytest.mark.timeout(280))

"""Lets tests import torch themselves, from the tree in ELASTIC_TORCH_TREE, by default the newest one.

`make check` leaves their folders out, as a new machine has no torch.
"""

import os
import sys

import pytest

from devcluster import torchtree
from devcluster.progress import Progress
from tests.worker.job.pod import RESOLVER

TREE = os.environ.get("ELASTIC_TORCH_TREE", torchtree.DEFAULT_TREE)


def give_torch():
    """Make torch importable."""
    sys.path.append(str(torchtree.ensure(Progress(quiet=True), tree=TREE)))


@pytest.fixture(autouse=True, scope="module")
def one_thread_on_loopback():
    """Set the variables for this process and its children, only while these tests run.

    Torch sets variables as well (its compiler TORCHINDUCTOR_CACHE_DIR); they are taken back with ours.
    """
    before = dict(os.environ)
    os.environ.update(RESOLVER, OMP_NUM_THREADS="1")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ[name] = "lo"
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def mark(items, folder, *marks):
    """Mark tests that start processes, and need torch's tree, which the local cluster installs into its cache."""
    for item in items:
        if f"tests/worker/{folder}/" in item.path.as_posix():
            for each in (pytest.mark.processes, pytest.mark.programs, *marks):
                item.add_marker(each)

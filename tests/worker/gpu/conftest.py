"""What only a machine with a GPU can show: `make test-gpu`. Elsewhere each test is skipped, and nothing is started.

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
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")


def pytest_collection_modifyitems(items):
    """They need torch's tree, which the local cluster installs into its cache, and a GPU."""
    import torch

    no_gpu = pytest.mark.skip(reason=f"needs a GPU: torch.cuda.is_available() is False (torch {torch.__version__})")
    for item in items:
        if "tests/worker/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.programs)
            if not torch.cuda.is_available():
                item.add_marker(no_gpu)

"""Tests that need a GPU: `make test-gpu`. On other machines each test is skipped, and no process is started."""

import pytest

from tests.worker.torchpath import give_torch, mark, one_thread_on_loopback  # noqa: F401

give_torch()


def pytest_collection_modifyitems(items):
    """See `mark`; without a GPU the tests are skipped."""
    import torch

    reason = f"needs a GPU: torch.cuda.is_available() is False (torch {torch.__version__})"
    needing = [item for item in items if item.path.name != "test_cards.py"]
    mark(needing, "gpu", pytest.mark.skipif(not torch.cuda.is_available(), reason=reason))

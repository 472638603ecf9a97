"""What is learnt does not depend on who computes it."""

import pytest

from tests.worker.torchpath import give_torch, mark, one_thread_on_loopback  # noqa: F401

give_torch()


def pytest_collection_modifyitems(items):
    """See `mark`. `runs.end` ends a run that stands still; this limit is for a slow machine."""
    mark(items, "equality", pytest.mark.timeout(900))

"""The tests of this folder show that the learnt model does not depend on the number of ranks."""

import pytest

from tests.worker.torchpath import give_torch, mark, one_thread_on_loopback  # noqa: F401

give_torch()


def pytest_collection_modifyitems(items):
    """See `mark`. `runs.end` ends a stalled run; this limit is for a slow machine."""
    mark(items, "equality", pytest.mark.timeout(900))

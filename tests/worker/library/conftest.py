"""The library's own parts; each test can also be run with ELASTIC_TORCH_TREE=oldest."""

from tests.worker.torchpath import give_torch, mark, one_thread_on_loopback  # noqa: F401

give_torch()


def pytest_collection_modifyitems(items):
    """See `mark`."""
    mark(items, "library")

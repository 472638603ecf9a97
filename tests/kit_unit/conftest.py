"""Async tests of this folder run in virtual time."""

from tests.kit.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories():
    """One kind of loop, without a name in the tests' own."""
    return {"virtual": VirtualLoop}

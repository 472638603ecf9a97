"""The event loop of async tests: a folder's conftest.py imports the hook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.kit.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A virtual loop, except for tests that need threads or processes; a single one, so that test ids do not change."""
    if item.get_closest_marker("processes"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualLoop}

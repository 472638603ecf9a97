"""The time in which async tests run: a folder's conftest.py imports the hook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.kit.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Virtual time, but for what only threads or processes can show; one loop each, so that names stay as they are."""
    if item.get_closest_marker("processes"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualLoop}

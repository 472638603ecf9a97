"""Marks the tests of folders that start processes and wait for them, which is too slow for `make check`."""

from pathlib import Path

import pytest

FOLDERS = {Path(__file__).parent / name for name in ("processes", "checkpoint")}


def pytest_collection_modifyitems(items):
    """Mark all tests of these folders."""
    for item in items:
        if FOLDERS & set(item.path.parents):
            item.add_marker(pytest.mark.processes)

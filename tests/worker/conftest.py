"""Some folders' tests start processes and wait for them: too much for a check of under a minute."""

from pathlib import Path

import pytest

FOLDERS = {Path(__file__).parent / name for name in ("processes", "checkpoint")}


def pytest_collection_modifyitems(items):
    """Mark all that is in them."""
    for item in items:
        if FOLDERS & set(item.path.parents):
            item.add_marker(pytest.mark.processes)

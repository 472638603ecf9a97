"""These tests start processes and wait for them: too much for a check of under a minute."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Mark all of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.processes)

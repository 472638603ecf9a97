"""A desk for each test."""

from pathlib import Path

import pytest

from tests.tools.build import Desk


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """A folder of its own, and the tools."""
    return Desk(tmp_path, capsys)

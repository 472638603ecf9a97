"""Checks that a run collects every test file. pytest's defaults left tests/build out for a year."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def uncollected(root: Path, collected: Iterable[Path]) -> list[str]:
    """The test files below `root` without a collected test, relative to it."""
    return sorted(path.relative_to(root).as_posix() for path in set(root.rglob("test_*.py")) - set(collected))


def check(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Raise pytest.UsageError if the run leaves a test file out."""
    missing = uncollected(session.config.rootpath / "tests", (item.path for item in items))
    if missing:
        raise pytest.UsageError(f"no test was collected from {', '.join(missing)}: see norecursedirs in pyproject.toml")

"""Nothing that looks like a test file stays out of a run unseen, as tests/build did for a year of pytest's defaults."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def uncollected(root: Path, collected: Iterable[Path]) -> list[str]:
    """The test files below `root` of which nothing was collected, relative to it."""
    return sorted(path.relative_to(root).as_posix() for path in set(root.rglob("test_*.py")) - set(collected))


def check(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Refuse a run that leaves a test file out. Raises pytest.UsageError."""
    missing = uncollected(session.config.rootpath / "tests", (item.path for item in items))
    if missing:
        raise pytest.UsageError(f"no test was collected from {', '.join(missing)}: see norecursedirs in pyproject.toml")

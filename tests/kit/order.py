"""Decides the order of tests, and which worker runs each.

The slowest files come first (`times`), so that no worker is left alone with a slow one at the end. Tests that share a
real cluster go to one worker, all others file by file.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.kit import times

SHARED = ("tests/cluster/", "tests/network/")
"""Folders whose tests share a cluster."""


def sort(items: list[pytest.Item], root: Path) -> None:
    """Sort the groups of one worker, and the files in each, the longest first. The order inside a file stays."""
    recorded = times.load()
    files = {item: item.path.relative_to(root).as_posix() for item in items}
    of_group: dict[str, float] = {}
    for path in set(files.values()):
        of_group[group(path)] = of_group.get(group(path), 0.0) + recorded.of_file(path)
    items.sort(key=lambda item: _place(files[item], of_group, recorded))


def _place(path: str, of_group: dict[str, float], recorded: times.Times) -> tuple[float, str, float, str]:
    return -of_group[group(path)], group(path), -recorded.of_file(path), path


def group(nodeid: str) -> str:
    """The group that goes to one worker: the folder if its tests share a cluster, else the file."""
    path = nodeid.partition("::")[0]
    return next((folder for folder in SHARED if path.startswith(folder)), path)


class ByGroup(LoadScopeScheduling):
    """xdist's scheduler with these groups. Its groups by mark are lost on pytest 9, where ids are fixed."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

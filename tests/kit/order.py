"""Which test comes when, and which worker runs it.

The files that took longest come first (`times`), so that no worker is left alone with a long one at the end. Tests
that share a real cluster go to one worker, all others file by file.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.kit import times

SHARED = ("tests/cluster/", "tests/network/")
"""Folders whose tests share a cluster."""


def sort(items: list[pytest.Item], root: Path) -> None:
    """Longest first: the groups that go to one worker, and the files in each. The order inside a file stays."""
    recorded = times.load()
    files = {item: item.path.relative_to(root).as_posix() for item in items}
    of_group: dict[str, float] = {}
    for path in set(files.values()):
        of_group[group(path)] = of_group.get(group(path), 0.0) + recorded.of_file(path)
    items.sort(key=lambda item: _place(files[item], of_group, recorded))


def _place(path: str, of_group: dict[str, float], recorded: times.Times) -> tuple[float, str, float, str]:
    return -of_group[group(path)], group(path), -recorded.of_file(path), path


def group(nodeid: str) -> str:
    """What goes to one worker: the folder where its tests share a cluster, else the file."""
    path = nodeid.partition("::")[0]
    return next((folder for folder in SHARED if path.startswith(folder)), path)


class ByGroup(LoadScopeScheduling):
    """xdist's scheduler with these groups. Its own, by mark, are lost on pytest 9, where ids are fixed."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

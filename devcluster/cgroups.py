"""Makes the cgroup of each node, in which its pods live. It must exist before kubelet starts.

With version 1 of cgroups it is a cgroup in every hierarchy, named ones included; with version 2 a single one, whose
parent passes its controllers on. The hierarchies are read from the mount table.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
WANTED_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
REMOVE_SECONDS = 5.0
WEIGHT_FILES = {"cpu.shares": 16 * 1024, "cpu.weight": 16 * 100}
"""CPU weight of a node. It is a whole machine, so all its pods together count as 16 processes, not as one."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy: its path, its version, and with version 1 whether cpusets must be filled in."""

    root: Path
    version: int
    has_cpuset: bool = False


def hierarchies(mounts: str) -> list[Hierarchy]:
    """The hierarchies that kubelet will use, from a mount table's text: all of version 1 if any, else version 2."""
    found = []
    for line in mounts.splitlines():
        _, root, kind, options, *_ = line.split()
        if kind == "cgroup":
            found.append(Hierarchy(Path(root), version=1, has_cpuset="cpuset" in options.split(",")))
        elif kind == "cgroup2":
            found.append(Hierarchy(Path(root), version=2))
    first_version = [hierarchy for hierarchy in found if hierarchy.version == 1]
    return first_version or found


def make(name: str) -> None:
    """Make the cgroup `name` below the root of every hierarchy."""
    for hierarchy in hierarchies(MOUNTS.read_text()):
        folder = hierarchy.root / name
        if hierarchy.version == 2:
            _hand_down_controllers(hierarchy.root)
        folder.mkdir(exist_ok=True)
        give_weight(folder)
        if hierarchy.version == 2:
            _hand_down_controllers(folder)
        if hierarchy.has_cpuset:
            _fill_cpuset(folder)


def pids(name: str) -> list[int]:
    """The processes in the cgroup `name` and below, in all hierarchies."""
    found: set[int] = set()
    for folder in _folders(name):
        with contextlib.suppress(OSError):
            found.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
    return sorted(found)


def remove(name: str) -> None:
    """Remove the cgroup `name` and all below it. Waits for killed processes, which leave it after their death."""
    end = time.monotonic() + REMOVE_SECONDS
    while folders := list(_folders(name)):
        for folder in folders:
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
        time.sleep(0.01)


def _folders(name: str) -> Iterator[Path]:
    """The cgroup's folders, the deepest first. Folders that vanish meanwhile are left out, since containers end."""
    roots = {hierarchy.root / name for hierarchy in hierarchies(MOUNTS.read_text())}
    # If both versions are mounted, runc may also have made a cgroup in version 2.
    for line in MOUNTS.read_text().splitlines():
        if line.split()[2] == "cgroup2":
            roots.add(Path(line.split()[1]) / name)
    for root in roots:
        for folder, _, _ in os.walk(root, topdown=False):
            yield Path(folder)


def give_weight(folder: Path) -> None:
    """Give a node's cgroup the CPU weight of a machine's processes."""
    for name, weight in WEIGHT_FILES.items():
        if (folder / name).exists():
            (folder / name).write_text(str(weight))


def _hand_down_controllers(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    available = (folder / "cgroup.controllers").read_text().split()
    for controller in WANTED_CONTROLLERS:
        if controller in available and controller not in control.read_text().split():
            control.write_text(f"+{controller}")


def _fill_cpuset(folder: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text())

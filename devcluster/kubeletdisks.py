"""The disk on which kubelet keeps the pods' files: a separate file system for each node, in a sparse file.

So a node's disk can be full while the machine's is not. It survives a restart of the node, as on a real machine.
Filling it takes no space on the machine's disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from devcluster import network, node_files, shell
from devcluster.api import wait_until
from devcluster.names import Layout

SIZE_BYTES = 16 << 30
LEFT_BYTES = 16 << 20
"""The free space of a full disk: far below kubelet's threshold, and enough for kubelet's files."""
FILLER = "filler"
DETACH_SECONDS = 10.0


def ensure(layout: Layout, node: str) -> None:
    """Make the node's disk unless it exists, and wait until no process uses it: two mounts would damage it."""
    image = layout.node(node) / node_files.KUBELET_DISK
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        # No journal is needed: the machine does not crash with a node, so its kernel completes all writes.
        shell.run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
    wait_until(
        lambda: not shell.run("losetup", "--associated", image),
        seconds=DETACH_SECONDS,
        what=f"the disk of {node} to be free",
    )


def fill(layout: Layout, node: str) -> None:
    """Fill the free space with one file."""
    filler = _filler(layout, node)
    found = os.statvfs(filler.parent)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - LEFT_BYTES)


def free(layout: Layout, node: str) -> None:
    """Remove that file, if it exists."""
    _filler(layout, node).unlink(missing_ok=True)


def _filler(layout: Layout, node: str) -> Path:
    """The path of that file on this machine, through the node's mounts."""
    inside = Path(f"/proc/{network.anchor(layout, node)}/root")
    return inside / node_files.KUBELET_FOLDER.lstrip("/") / FILLER

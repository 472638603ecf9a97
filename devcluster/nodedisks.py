"""Ready-made containerd disks with images on them: a node starts from a copy and unpacks nothing.

A copy consists of hard links, since containerd never changes an existing layer or blob; only its databases are copied.
So a node's disk takes no time to make or remove, and hardly any space.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from devcluster import cache, processes, shell
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

# Part of the cache key: raise it when the disks are made in another way.
FORMAT = "1"
KEPT_OF_A_KIND = 4
START_SECONDS = 20.0
CONFIG = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
"""


def identity(archive: Path) -> str:
    """An identity of the archive's content: another file, or a rewritten one, has another identity."""
    status = archive.stat()
    return cache.key([str(archive.resolve()), str(status.st_size), str(status.st_mtime_ns)])


def ensure(progress: Progress, archives: Sequence[Path]) -> Path | None:
    """A disk with the images of `archives`, each added to the disk of the previous ones; None without archives."""
    if not archives:
        return None
    below, archive = ensure(progress, archives[:-1]), archives[-1]

    def build(folder: Path) -> None:
        with progress.step(f"unpacking {archive.name}, once for all nodes"):
            disk = folder / "disk"
            copy(below, disk)
            with _containerd(disk, log=folder / "containerd.log") as socket:
                shell.run("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)

    key = cache.key([FORMAT, *(identity(each) for each in archives)])
    entry = cache.entry(f"node-disks/{archive.stem}-{key}", build)
    cache.keep_newest(entry, beginning=f"{archive.stem}-", count=KEPT_OF_A_KIND)
    return entry / "disk"


def copy(disk: Path | None, target: Path) -> None:
    """Make `target` a separate disk with the content of `disk`, or an empty one."""
    target.mkdir(parents=True, exist_ok=True)
    if disk is None:
        return
    shell.run("cp", "--archive", "--link", f"{disk}/.", target)
    for database in target.glob("io.containerd.*/*.db"):
        database.unlink()
        shutil.copy2(disk / database.relative_to(target), database)


@contextmanager
def _containerd(disk: Path, *, log: Path) -> Iterator[Path]:
    """Run a separate containerd that only stores and unpacks; yield its socket."""
    with tempfile.TemporaryDirectory(prefix="containerd-") as temporary, log.open("wb") as output:
        state = Path(temporary)
        socket, config = state / "socket", state / "config.toml"
        config.write_text(CONFIG.format(root=disk, state=state / "state", socket=socket))
        process = subprocess.Popen(["containerd", "--config", config], stdout=output, stderr=output)
        try:
            _wait_for(socket, log=log)
            yield socket
        finally:
            process.terminate()
            process.wait()


def _wait_for(socket: Path, *, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not shell.try_run("ctr", "--address", socket, "version"):
        if time.monotonic() > end:
            raise DevclusterError(f"containerd does not start; {processes.last_words(log)}")
        time.sleep(0.05)

"""The cache of downloads and builds between runs. An entry appears atomically.

An entry's name contains a hash of all its inputs, so an entry is never changed: other content has another name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devcluster.errors import DevclusterError

KEY_LENGTH = 16
GIGABYTE = 1 << 30
ROOM_GIGABYTES = {"bin": 7, "images": 2, "torch": 6}
"""The space of each kind of entry on an empty disk, with the caches of Go and uv: measured, and rounded up."""


def root() -> Path:
    """The cache directory of this project, made if need be: ${XDG_CACHE_HOME:-~/.cache}/elastic-pytorch."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(base).expanduser() / "elastic-pytorch"
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(parts: Iterable[str | bytes]) -> str:
    """A name of 16 hex digits for a sequence of parts. Lengths are hashed too: ["ab"] is not ["a", "b"]."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:KEY_LENGTH]


def key_of_files(paths: Iterable[Path], *, relative_to: Path, extra: Iterable[str] = ()) -> str:
    """The key of some files' names and contents. The order of `paths` does not matter; folders are walked."""
    parts: list[str | bytes] = list(extra)
    for path in sorted(_walk(paths)):
        parts += [path.relative_to(relative_to).as_posix(), path.read_bytes()]
    return key(parts)


def _walk(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (p for p in path.rglob("*") if p.is_file() and not _is_waste(p))
        elif path.is_file():
            yield path


def _is_waste(path: Path) -> bool:
    return path.suffix == ".pyc" or any(part.startswith(".") or part == "__pycache__" for part in path.parts[-3:])


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold the machine-wide lock `name`; waits for another process that holds it."""
    folder = root() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """The directory `name` in the cache, made by `build(directory)` if it is not there.

    `build` works in a directory beside it, which is renamed when it returns; a build that fails or is stopped leaves
    nothing. If two processes want the same entry, the second waits for the first.
    """
    path = root() / name
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(name.replace("/", "_")):
        if path.is_dir():
            return path
        with _unfinished(path) as folder:
            build(folder)
            folder.rename(path)
    return path


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    folder = path.with_name(path.name + ".unfinished")
    shutil.rmtree(folder, ignore_errors=True)  # left by a machine that lost its power
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_room(*kinds: str) -> None:
    """Raise DevclusterError if the disk has no room for the kinds of entries that are missing."""
    wanted = sum(ROOM_GIGABYTES[kind] for kind in kinds if not any((root() / kind).glob("*")))
    free = shutil.disk_usage(root()).free / GIGABYTE
    if free < wanted:
        raise DevclusterError(
            f"the first run needs {wanted} GB on the disk of {root()} and {free:.1f} GB are free: free some space, or "
            "let XDG_CACHE_HOME name a folder on a bigger disk"
        )


def keep_newest(kept: Path, *, beginning: str, count: int) -> None:
    """Remove old entries beside `kept` whose names begin with that text: `kept` and the newest others stay, `count`
    together.
    """
    others = [path for path in kept.parent.glob(f"{beginning}*") if path.is_dir() and path != kept]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[count - 1 :]:
        shutil.rmtree(path, ignore_errors=True)

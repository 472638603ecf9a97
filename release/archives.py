"""Archives that depend on their contents alone: names in order, no owners, the commit's time."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def environment(epoch: int) -> dict[str, str]:
    """By what other programs are told that time (https://reproducible-builds.org/specs/source-date-epoch)."""
    return {"SOURCE_DATE_EPOCH": str(epoch)}


def pack(folder: Path, *, epoch: int) -> bytes:
    """The tar of all files in `folder`, by their paths in it."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return _tar(files, epoch=epoch)


def repack(archive: bytes, *, epoch: int) -> bytes:
    """A .tar.gz with the same files as another one."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as read:
        found = {member.name: read.extractfile(member) for member in read if member.isfile()}
        files = {name: content.read() for name, content in found.items() if content}
    return gzip.compress(_tar(files, epoch=epoch), mtime=epoch)


def _tar(files: Mapping[str, bytes], *, epoch: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), epoch, 0o644
            written.addfile(member, io.BytesIO(data))
    return packed.getvalue()

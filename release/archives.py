"""Archives that depend on their contents alone: names in order, no owners, the commit's time."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def environment(epoch: int) -> dict[str, str]:
    """By what other programs are told that time (https://reproducible-builds.org/specs/source-date-epoch)."""
    return {"SOURCE_DATE_EPOCH": str(epoch)}


def pack(folder: Path, archive: Path, *, epoch: int) -> None:
    """Make the tar `archive` of all files in `folder`."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as written:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            _add(written, path.relative_to(folder).as_posix(), path.read_bytes(), epoch=epoch)


def normalise(archive: Path, *, epoch: int) -> None:
    """Write a .tgz anew, with the same files in it."""
    with tarfile.open(archive) as read:
        found = {member.name: read.extractfile(member) for member in read if member.isfile()}
        files = {name: content.read() for name, content in found.items() if content}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written:
        for name in sorted(files):
            _add(written, name, files[name], epoch=epoch)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, epoch: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), epoch, 0o644
    archive.addfile(member, io.BytesIO(data))

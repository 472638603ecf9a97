"""The manifest of a checkpoint: it is written last, and lists the checkpoint's files, their lengths and checksums.

A checkpoint is complete if its manifest exists and every file is as listed. This module does not depend on torch.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

NAME = "manifest.json"
FORMAT = 1
_READ_BYTES = 4 << 20


class WriterOrder(NamedTuple):
    """A writer: the master's epoch, and the generation of the group. A higher one is newer."""

    epoch: int
    generation: int


class Digest(NamedTuple):
    """Expected length in bytes and checksum of a file."""

    size: int
    crc32: int


class TornError(Exception):
    """A checkpoint is incomplete; the message says which file is wrong and why."""


@dataclass(frozen=True)
class Manifest:
    """Content, writer and files of a checkpoint. `world` is the number of ranks that trained."""

    step: int
    order: WriterOrder
    torch: str
    world: int
    meta: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Digest] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder, durably. Raises OSError."""
        fields = {"format": FORMAT, **asdict(self), "order": list(self.order)}
        fields["files"] = {name: digest._asdict() for name, digest in self.files.items()}
        write_durably(folder / NAME, json.dumps(fields, indent=1).encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder. Raises TornError if it is missing or unreadable."""
        try:
            fields = json.loads((folder / NAME).read_bytes())
            if fields["format"] != FORMAT:
                raise TornError(f"{NAME} has format {fields['format']}, this version of elastic_worker reads {FORMAT}")
            return cls(
                step=int(fields["step"]),
                order=WriterOrder(*map(int, fields["order"])),
                torch=str(fields["torch"]),
                world=int(fields["world"]),
                meta=dict(fields["meta"]),
                files={name: Digest(int(d["size"]), int(d["crc32"])) for name, d in fields["files"].items()},
            )
        except (FileNotFoundError, NotADirectoryError):
            raise TornError(f"{NAME} is missing") from None
        except OSError as error:
            raise TornError(f"{NAME} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TornError(f"{NAME} is damaged: {error!r}") from error

    def check_sizes(self, folder: Path) -> None:
        """Check that all files exist with the right length. Raises TornError."""
        for name, digest in self.files.items():
            try:
                size = (folder / name).stat().st_size
            except FileNotFoundError:
                raise TornError(f"{name} is missing") from None
            except OSError as error:
                raise TornError(f"{name} cannot be read: {error.strerror}") from error
            if size != digest.size:
                raise TornError(f"{name} has {size} bytes instead of {digest.size}")

    def check(self, folder: Path) -> None:
        """Read every file. Raises TornError for the first one that differs from what was written."""
        self.check_sizes(folder)
        self.check_content(folder, self.files)

    def check_content(self, folder: Path, names: Iterable[str]) -> None:
        """Read these files. Raises TornError for the first one that differs from what was written."""
        for name in names:
            written = self.files[name]
            try:
                actual = digest_of(folder / name)
            except OSError as error:
                raise TornError(f"{name} cannot be read: {error.strerror}") from error
            if actual != written:
                raise TornError(f"{name} has checksum {actual.crc32:08x} instead of {written.crc32:08x}")


def digests(files: Iterable[Path]) -> dict[str, Digest]:
    """Digests of the files by name. Raises OSError."""
    return {file.name: digest_of(file) for file in sorted(files)}


def digest_of(file: Path) -> Digest:
    """Digest of a file; reads all of it."""
    size = crc = 0
    buffer = memoryview(bytearray(_READ_BYTES))
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
            size += count
    return Digest(size, crc)


def write_durably(file: Path, content: bytes) -> None:
    """Write and sync a file; its name is durable only after `sync_folder`. Raises OSError."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; does nothing if the file system cannot. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)

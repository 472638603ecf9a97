"""Checks by a file's content whether it was written to its end, for formats that show it.

It reads a few kilobytes, or a zip's table of contents, and never the tensors.
"""

from __future__ import annotations

import json
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_ZIP_START = b"PK\x03\x04"
_OLD_TORCH_START = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The start of torch.save's format before 1.6: raw tensors follow the pickles, so the file's end shows nothing."""
_PICKLE_PROTOCOLS = (2, 3, 4, 5)
_PICKLE_END = b"."
_LARGEST_JSON_BYTES = 16 << 20
_LARGEST_HEADER_BYTES = 256 << 20


@dataclass(frozen=True)
class Fingerprint:
    """Inode, size and times of a file. They differ for another file, and for a file that was written since."""

    inode: int
    size: int
    changed_ns: int


def fingerprint_of(path: Path) -> Fingerprint | None:
    """Fingerprint of the file, or of a symlink's target; None if it does not exist."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Fingerprint(inode=stat.st_ino, size=stat.st_size, changed_ns=stat.st_mtime_ns)


def is_whole(path: Path) -> bool | None:
    """Whether the file is complete; None if its format does not show it. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        start = file.read(16)
        if start.startswith(_ZIP_START):
            return _is_whole_zip(path)
        if path.name.endswith(".safetensors"):
            return _is_whole_safetensors(file)
        if path.name.endswith(".json"):
            return _is_whole_json(file)
        if start.startswith(_OLD_TORCH_START):
            return None
        if start[:1] == b"\x80" and start[1:2] in map(_byte, _PICKLE_PROTOCOLS):
            return _ends_with(file, _PICKLE_END)
    return None


def _is_whole_zip(path: Path) -> bool:
    """Whether the zip has its table of contents, which is written last, and everything that the table lists."""
    try:
        with zipfile.ZipFile(path) as archive:
            last = max(archive.infolist(), key=lambda entry: entry.header_offset, default=None)
            if last is None:
                return True
            if any(entry.header_offset < 0 for entry in archive.infolist()):
                return False  # the table lists more bytes than the file has before it
            with archive.open(last) as entry:  # checks the header that lies before the content
                return entry.readable()
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError):
        return False


def _is_whole_safetensors(file: BinaryIO) -> bool:
    """Whether the file has the header's length, the header, and as many bytes as the header names."""
    size = file.seek(0, 2)
    file.seek(0)
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size, _LARGEST_HEADER_BYTES):
            return False
        tensors = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False
    return bool(size == 8 + length + max(ends, default=0))


def _is_whole_json(file: BinaryIO) -> bool | None:
    size = file.seek(0, 2)
    if size > _LARGEST_JSON_BYTES:
        return None
    file.seek(0)
    try:
        json.loads(file.read())
    except ValueError:
        return False
    return True


def _ends_with(file: BinaryIO, end: bytes) -> bool:
    size = file.seek(0, 2)
    file.seek(max(0, size - len(end)))
    return file.read() == end


def _byte(number: int) -> bytes:
    return bytes((number,))

"""Reads the kernel's notices of changes in folders (inotify), which Python's standard library does not offer."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLOSE_WRITE = 0x0000_0008
MOVED_FROM = 0x0000_0040
MOVED_TO = 0x0000_0080
CREATE = 0x0000_0100
DELETE = 0x0000_0200
DELETE_SELF = 0x0000_0400
MOVE_SELF = 0x0000_0800
OVERFLOW = 0x0000_4000
IGNORED = 0x0000_8000
IS_FOLDER = 0x4000_0000
_ONLY_FOLDERS = 0x0100_0000

MASK = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
_HEADER = struct.Struct("iIII")
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Notice:
    """A change of `name` in the folder of watch number `watch`; the name is "" for the folder itself."""

    watch: int
    mask: int
    name: str

    def has(self, bits: int) -> bool:
        """Whether the notice has one of these bits."""
        return bool(self.mask & bits)


class Inotify:
    """One queue of notices. Raises OSError if the user has no inotify instance or descriptor left."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, folder: Path) -> int:
        """Watch a folder; returns its number, the same for the same folder.

        Raises OSError if the folder does not exist or is not readable, or if the user has no watch left.
        """
        return self._check(self._libc.inotify_add_watch(self.descriptor, os.fsencode(folder), MASK | _ONLY_FOLDERS))

    def remove(self, watch: int) -> None:
        """Stop watching that folder; nothing happens if it does not exist any more."""
        self._libc.inotify_rm_watch(self.descriptor, watch)

    def read(self) -> list[Notice]:
        """The notices since the last call; [] if there are none."""
        notices: list[Notice] = []
        while True:
            try:
                block = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return notices
            notices.extend(_parse(block))

    def close(self) -> None:
        """Stop watching."""
        os.close(self.descriptor)

    @staticmethod
    def _check(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def _parse(block: bytes) -> Iterator[Notice]:
    place = 0
    while place < len(block):
        watch, mask, _, length = _HEADER.unpack_from(block, place)
        place += _HEADER.size
        yield Notice(watch, mask, os.fsdecode(block[place : place + length].rstrip(b"\0")))
        place += length

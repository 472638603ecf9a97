"""Shifts the wall clock of running processes, as if their machine had another time.

Programs in Go and Python read the time through the vDSO, code that the kernel maps into each process. The copy in one
process can be overwritten from outside like any other code, as debuggers do: `clock_gettime` then calls the kernel, and
adds the shift if the wall clock was requested. Monotonic clocks are unchanged. Forked processes inherit the shift; a
new program in the process does not.
"""

from __future__ import annotations

import contextlib
import errno
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

from devcluster.errors import DevclusterError

FUNCTION = b"__vdso_clock_gettime"
DYNAMIC_SYMBOLS = 11
"""The type of the section with the dynamic symbols in an ELF file."""
SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")


def shift(pids: Iterable[int], seconds: int) -> None:
    """Set the wall clock of these processes ahead by `seconds`; a process that has ended meanwhile is no error."""
    if platform.machine() != "x86_64":
        raise DevclusterError(f"the clock of a process can be shifted on x86_64 only, and this is {platform.machine()}")
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while not _is_shifted(pid, seconds):
                continue  # the process has begun a new program meanwhile, or ended


def _is_shifted(pid: int, seconds: int) -> bool:
    """Shift the clock of the program that the process runs; False if another one has taken its place meanwhile."""
    mapped = _vdso(pid)
    if mapped is None:
        return True  # a process that ends
    begin, end = mapped
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        try:
            memory.seek(begin)
            image = memory.read(end - begin)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        if len(image) < end - begin:
            return False
        offset, size = _find(image)
        code = _code(seconds)
        if size < len(code):
            raise DevclusterError(f"the kernel's {FUNCTION.decode()} has {size} bytes, and {len(code)} are needed")
        memory.seek(begin + offset)
        memory.write(code)
    return True


def _code(seconds: int) -> bytes:
    """Machine code for clock_gettime(clock in edi, result in rsi)."""
    ask_the_kernel = b"\xb8\xe4\x00\x00\x00" + b"\x0f\x05"  # mov eax, 228; syscall
    unless_wall_clock = b"\x85\xff" + b"\x75\x07"  # test edi, edi; jnz over the addition
    add = b"\x48\x81\x06" + struct.pack("<i", seconds)  # add qword [rsi], seconds
    return ask_the_kernel + unless_wall_clock + add + b"\xc3"  # ret


def _vdso(pid: int) -> tuple[int, int] | None:
    """The vDSO's addresses in the process's memory."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            begin, _, end = line.split()[0].partition("-")
            return int(begin, 16), int(end, 16)
    return None


def _find(image: bytes) -> tuple[int, int]:
    """Offset and size of the function in an ELF image of 64 bits."""
    (first,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [SECTION.unpack_from(image, first + i * size) for i in range(count)]
    symbols = next(section for section in sections if section[1] == DYNAMIC_SYMBOLS)
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], SYMBOL.size):
        name, *_, offset, length = SYMBOL.unpack_from(image, at)
        if image[names + name : image.index(b"\0", names + name)] == FUNCTION:
            return offset, length
    raise DevclusterError(f"this kernel's vDSO has no {FUNCTION.decode()}")

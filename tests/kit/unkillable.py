"""A process that SIGKILL does not end, as one that hangs in the kernel: its end stays hidden from its parent."""

import contextlib
import ctypes
import os

PTRACE_SEIZE = 0x4206
WALL = 0x40000000


@contextlib.contextmanager
def unkillable(pid):
    """The parent of a traced process hears of its end when the tracer has. Needs root, and one thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, pid, None, None):
        raise OSError(ctypes.get_errno(), f"process {pid} cannot be traced")
    try:
        yield
    finally:
        os.waitpid(pid, WALL)

"""A process that SIGKILL does not end, like one that hangs in the kernel: its parent does not see its end."""

import contextlib
import ctypes
import os

PTRACE_SEIZE = 0x4206
WALL = 0x40000000


@contextlib.contextmanager
def unkillable(pid):
    """Trace the process: its parent sees its end only after the tracer has. Needs root, and one thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, pid, None, None):
        raise OSError(ctypes.get_errno(), f"process {pid} cannot be traced")
    try:
        yield
    finally:
        os.waitpid(pid, WALL)

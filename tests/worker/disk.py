"""A small disk, to test a full one."""

import contextlib
import subprocess


@contextlib.contextmanager
def small_disk(folder, size):
    """The new folder, with no more room than `size`, as mount takes it."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)

"""Real processes that write checkpoints like scripts, and files in the formats of torch, safetensors and pickle."""

import asyncio
import contextlib
import io
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

from elastic_worker.checkpoint.watch import CheckpointWatch
from tests.kit.proc import stat_of
from tests.kit.wait import until


class Script:
    """A process that runs Python code in its own session, with the methods of a launcher's process."""

    def __init__(self, code):
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], start_new_session=True, stdin=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.frozen = self.thawed = 0

    def go_on(self):
        """Let it pass its next `input()`."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def freeze(self):
        self.frozen += 1
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self):
        self.thawed += 1
        os.killpg(self.pid, signal.SIGCONT)

    def kill_now(self):
        """Kill it, like a loss. Its files are closed when this returns."""
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()

    def wait(self):
        code = self._process.wait(timeout=30)
        self._process.stdin.close()
        return code

    def state(self):
        return stat_of(self.pid)[0]


@contextlib.contextmanager
def running(code, kind=None):
    """A script that is killed at the end of the context."""
    script = (kind or Script)(code)
    try:
        yield script
    finally:
        script.kill()


@contextlib.asynccontextmanager
async def watching(path, *scripts, marker=""):
    """A watch on the path, with these scripts as the training processes."""
    watch = CheckpointWatch(Path(path), writers=lambda: [script.pid for script in scripts], marker=marker)
    await watch.open()
    try:
        yield watch
    finally:
        await watch.close()


async def settled(watch, *, seconds=0.3):
    """Wait until the watch has handled all changes, to check that nothing else happens."""
    await asyncio.sleep(seconds)
    await asyncio.to_thread(wait_for, lambda: not is_pending(watch))


def is_pending(watch):
    """Whether a written file was not judged yet."""
    return watch.behind or watch._patience() is not None


def zip_bytes(size=5000):
    """A zip as of torch.save: stored entries, and a table of contents at the end."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": 1}))
        archive.writestr("archive/data/0", os.urandom(size))
    return buffer.getvalue()


def safetensors_bytes(size=4000):
    """A header with one tensor, and the tensor."""
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(size)


def wait_for(condition, seconds=20):
    """Wait until the condition holds."""
    until("it to hold", condition, seconds=seconds, poll_seconds=0.01)

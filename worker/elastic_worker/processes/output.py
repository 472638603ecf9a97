"""Puts the prefix `[default0]:`, with the local rank, before the lines of a training process, as `torchrun --tee` does.

One thread per stream copies whole lines to the launcher's own stream. While that stream blocks, the thread waits, and
in the end the training process waits too, as it would if it wrote there itself.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

LINE_BYTES = 65_536
"""Longer lines are split."""


class Prefixed:
    """Pipes for the stdout and stderr of one process, and the threads that read them."""

    def __init__(self, prefix: str) -> None:
        out, err = _Pump(prefix, target=1), _Pump(prefix, target=2)
        self._pumps = (out, err)
        self.descriptors = (out.descriptor, err.descriptor)

    def started(self) -> None:
        """Close our copies of the descriptors, so that the streams can end. The process has its own by now, if any."""
        for pump in self._pumps:
            os.close(pump.descriptor)

    def ended(self) -> bool:
        """Whether all lines have been copied."""
        return not any(pump.is_alive() for pump in self._pumps)

    def join(self, seconds: float) -> None:
        """Wait until all lines have been copied, at most `seconds` per stream."""
        for pump in self._pumps:
            pump.join(seconds)


class _Pump(threading.Thread):
    def __init__(self, prefix: str, *, target: int) -> None:
        super().__init__(name=f"output {prefix}", daemon=True)
        self._source, self.descriptor = os.pipe()
        self._prefix, self._target = prefix.encode(), target
        self.start()

    def run(self) -> None:
        with os.fdopen(self._source, "rb") as lines:
            while line := lines.readline(LINE_BYTES):
                with suppress(OSError):
                    _write(self._target, self._prefix + line + (b"" if line.endswith(b"\n") else b"\n"))


def _write(target: int, data: bytes) -> None:
    """Write all bytes. A pipe takes at most 4096 bytes atomically, so longer lines of several ranks may mix."""
    while data:
        data = data[os.write(target, data) :]

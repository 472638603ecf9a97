"""Copies the output of a training process to the launcher's streams, and keeps its last lines.

If a pod has several processes, each line has the prefix `[default0]:` with the local rank, as with `torchrun --tee`.
The output of a single process is copied unchanged, because a progress bar has no line ends. The last lines say why a
process failed without an exception.

One thread per stream copies. While the launcher's stream blocks, the thread waits. Once the pipe is full, the training
process waits too, as it would if it wrote to that stream itself.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress

from elastic_worker import last_lines

LINE_BYTES = 65_536
"""Longer lines are split."""
KEPT_BYTES = 4096
"""The most bytes that are kept of one line, more than are shown."""


class Output:
    """Pipes for the stdout and stderr of one process, and the threads that read them."""

    def __init__(self, prefix: str = "") -> None:
        self._lines: deque[bytes] = deque(maxlen=2 * last_lines.MOST_LINES)
        out, err = _Pump(prefix, self._lines, target=1), _Pump(prefix, self._lines, target=2)
        self._pumps = (out, err)
        self.descriptors = (out.descriptor, err.descriptor)

    def started(self) -> None:
        """Close our copies of the descriptors, so that the streams can end. The process has its copies, if it runs."""
        for pump in self._pumps:
            os.close(pump.descriptor)

    def ended(self) -> bool:
        """Whether all lines have been copied."""
        return not any(pump.is_alive() for pump in self._pumps)

    def join(self, seconds: float) -> None:
        """Wait until all lines have been copied, at most `seconds` per stream."""
        for pump in self._pumps:
            pump.join(seconds)

    def last_lines(self) -> tuple[str, ...]:
        """The last lines of both streams so far, in the order in which they were read."""
        lines = [*self._lines.copy(), *(pump.begun for pump in self._pumps if pump.begun)]
        return last_lines.shown(line.decode(errors="replace") for line in lines)


class _Pump(threading.Thread):
    """Copies one stream. `begun` is the beginning of a line whose end was not read yet."""

    def __init__(self, prefix: str, lines: deque[bytes], *, target: int) -> None:
        super().__init__(name=f"output {prefix or target}", daemon=True)
        self._source, self.descriptor = os.pipe()
        self._prefix, self._lines, self._target = prefix.encode(), lines, target
        self.begun = b""
        self.start()

    def run(self) -> None:
        if self._prefix:
            self._copy_lines()
        else:
            self._copy()

    def _copy_lines(self) -> None:
        with os.fdopen(self._source, "rb") as lines:
            while line := lines.readline(LINE_BYTES):
                self._lines.append(line[-KEPT_BYTES:])
                with suppress(OSError):
                    _write(self._target, self._prefix + line + (b"" if line.endswith(b"\n") else b"\n"))

    def _copy(self) -> None:
        with os.fdopen(self._source, "rb", buffering=0) as source:
            while data := source.read(LINE_BYTES):
                *ended, begun = (self.begun + data).split(b"\n")
                self._lines.extend(line[-KEPT_BYTES:] for line in ended)
                self.begun = begun[-KEPT_BYTES:]
                with suppress(OSError):
                    _write(self._target, data)


def _write(target: int, data: bytes) -> None:
    """Write all bytes. A pipe takes at most 4096 bytes atomically, so longer lines of several ranks may mix."""
    while data:
        data = data[os.write(target, data) :]

"""Logging of this package's processes: one line per change, to stderr, beside the script's own output.

stderr is a pipe that the container runtime empties onto a disk of the node. When that disk stalls, a writer blocks, and
a pod that is silent for `wire.SILENCE_SECONDS` counts as lost. So a separate thread writes. Lines that do not fit its
queue are counted, and their number is logged instead.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from contextlib import suppress

MOST_LINES = 1000
"""Length of the queue: minutes of a busy launcher's lines."""
FLUSH_SECONDS = 1.0
"""How long a process waits at its end for its last lines to be written."""


class Background(logging.Handler):
    """Writes to a file descriptor from a thread; only `flush` waits for it."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self._target = target
        self._dropped = 0
        """Number of lines that did not fit the queue, since the start."""
        self._lines: queue.Queue[str] = queue.Queue(MOST_LINES)
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it if the queue is full."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait until all lines are written, at most `FLUSH_SECONDS`."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_SECONDS)

    def _write_all(self) -> None:
        reported = 0
        while True:
            self._write(self._lines.get())
            dropped = self._dropped
            if dropped > reported:
                self._write(f"{dropped - reported} lines of the log are left out: it could not be written")
                reported = dropped
            self._lines.task_done()

    def _write(self, line: str) -> None:
        """Write to the descriptor: the lock of a stream would be held while the disk stalls, also at exit."""
        data = line.encode(errors="backslashreplace") + b"\n"
        with suppress(OSError):
            while data:
                data = data[os.write(self._target, data) :]


def set_up(name: str) -> None:
    """Log as `name`, from the level ELASTIC_LOG_LEVEL (debug, info, warning, error) on."""
    level = os.environ.get("ELASTIC_LOG_LEVEL", "info").upper()
    logging.basicConfig(
        handlers=[Background(sys.stderr.fileno())],
        level=level if level in ("DEBUG", "INFO", "WARNING", "ERROR") else "INFO",
        format=f"%(asctime)s.%(msecs)03d elastic-{name}: %(message)s",
        datefmt="%H:%M:%S",
    )


def brief(text: str) -> str:
    """A text of several lines as one line: the first and the last one."""
    lines = text.strip().splitlines()
    return text if len(lines) < 2 else f"{lines[0]} ... {lines[-1].strip()}"

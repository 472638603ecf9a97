"""How the processes of this package log: one line per change, to stderr, beside what the script prints.

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
        """Since the beginning."""
        self._lines: queue.Queue[str] = queue.Queue(MOST_LINES)
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Put a line on its way, or count it."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait until all lines are written, at most `FLUSH_SECONDS`."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_SECONDS)

    def _write_all(self) -> None:
        told = 0
        while True:
            self._write(self._lines.get())
            dropped = self._dropped
            if dropped > told:
                self._write(f"{dropped - told} lines of the log are left out: it could not be written")
                told = dropped
            self._lines.task_done()

    def _write(self, line: str) -> None:
        """Write without a stream, whose lock would be held while the disk stalls, also at exit."""
        data = line.encode(errors="backslashreplace") + b"\n"
        with suppress(OSError):
            while data:
                data = data[os.write(self._target, data) :]


def set_up(name: str) -> None:
    """Log as `name`; ELASTIC_LOG_LEVEL (debug, info, warning, error) says how much."""
    level = os.environ.get("ELASTIC_LOG_LEVEL", "info").upper()
    logging.basicConfig(
        handlers=[Background(sys.stderr.fileno())],
        level=level if level in ("DEBUG", "INFO", "WARNING", "ERROR") else "INFO",
        format=f"%(asctime)s.%(msecs)03d elastic-{name}: %(message)s",
        datefmt="%H:%M:%S",
    )


def brief(told: str) -> str:
    """Several lines as one: the first and the last."""
    lines = told.strip().splitlines()
    return told if len(lines) < 2 else f"{lines[0]} ... {lines[-1].strip()}"

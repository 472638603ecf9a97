"""Reports steps and waits on stderr, one line each.

Long steps report again every few seconds, to show that a five-minute build still runs. It uses the standard library
only, because the first steps are done before any package is installed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

REPEAT_SECONDS = 20.0
RED, GREEN, CYAN, DIM = "31", "32", "36", "2"


class Step:
    """A step under way. `detail` is shown with the next repetition; assign to it from any thread."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.detail = ""
        self.started = time.monotonic()

    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.started


class Progress:
    """Lines on stderr. `quiet` prints nothing, for tests."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        """Print one line."""
        self._print(f"  {text}")

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Print `text`, repeat it while the step lasts, and print the seconds that it took at the end."""
        step = Step(text)
        done = threading.Event()
        self._print(f"{_in('…', CYAN)} {text}")
        repeater = threading.Thread(target=self._repeat, args=(step, done), daemon=True)
        repeater.start()
        mark = _in("✗", RED)
        try:
            yield step
            mark = _in("✓", GREEN)
        finally:
            done.set()
            repeater.join()
            self._print(f"{mark} {text} {_in(f'({step.seconds():.1f} s)', DIM)}")

    def _repeat(self, step: Step, done: threading.Event) -> None:
        while not done.wait(REPEAT_SECONDS):
            detail = f": {step.detail}" if step.detail else ""
            self.say(f"still {step.text}, {step.seconds():.0f} s{detail}")

    def _print(self, line: str) -> None:
        if not self._quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def _in(text: str, colour: str) -> str:
    """The text in that colour if stderr is a terminal."""
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    return f"\033[{colour}m{text}\033[0m" if coloured else text

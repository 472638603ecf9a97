"""Says what is being done and what is being waited for, one line each, on stderr.

Long steps report again every few seconds, so that nobody wonders whether a five-minute build still lives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

REPEAT_SECONDS = 20.0


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
        self._console = Console(stderr=True, quiet=quiet, highlight=False)

    def say(self, text: str) -> None:
        """One line about something that is so."""
        self._console.print(f"  {text}", markup=False, soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Announce `text`, repeat it while it lasts, and close it with the seconds it took."""
        step = Step(text)
        done = threading.Event()
        self._console.print(f"[cyan]…[/] {text}", soft_wrap=True)
        repeater = threading.Thread(target=self._repeat, args=(step, done), daemon=True)
        repeater.start()
        try:
            yield step
        except BaseException:
            self._console.print(f"[red]✗[/] {text} [dim]({step.seconds():.1f} s)[/]", soft_wrap=True)
            raise
        finally:
            done.set()
            repeater.join()
        self._console.print(f"[green]✓[/] {text} [dim]({step.seconds():.1f} s)[/]", soft_wrap=True)

    def _repeat(self, step: Step, done: threading.Event) -> None:
        while not done.wait(REPEAT_SECONDS):
            detail = f": {step.detail}" if step.detail else ""
            self.say(f"still {step.text}, {step.seconds():.0f} s{detail}")

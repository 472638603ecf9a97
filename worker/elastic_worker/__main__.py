"""The first process of a training pod in Elastic mode."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

_signals: list[int] = []


def _note(number: int, _frame: FrameType | None) -> None:
    _signals.append(number)


def main() -> int:
    """Run the pod; returns its exit code."""
    # PID 1 ignores signals without a handler: a pod terminated during this start would use up its grace period.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    from elastic_worker.launcher.main import run_pod

    return run_pod(sys.argv[1:], is_terminating=lambda: bool(_signals))


if __name__ == "__main__":
    sys.exit(main())

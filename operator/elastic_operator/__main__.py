"""The program's entry point: a signal ends it from its first moment on.

The kernel drops a SIGTERM that process 1 of a container does not handle, and the pod would then wait for its whole
grace period. Importing the rest of the program takes longer than a second, so the handler is set first.
"""

from __future__ import annotations

import gc
import signal
import sys

GC_THRESHOLDS = (20_000, 10, 10)
"""High enough to cost nothing, a tenth of all imports otherwise, and low enough that cycles of kopf and aiohttp do not
pile up.
"""


def main() -> int:
    """The command line; returns the exit code."""
    if sys.argv[1:2] == ["run"]:  # its own handler takes over once the process has a lease to hand back
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        gc.set_threshold(*GC_THRESHOLDS)
    from elastic_operator import command_line

    return command_line.main()


if __name__ == "__main__":
    sys.exit(main())

"""Where the program starts: a signal ends it from its first moment on.

As process 1 of a container it gets no SIGTERM that it does not handle (the kernel drops it), and its pod would sit out
its grace period; importing the rest takes longer than a second.
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
    if sys.argv[1:2] == ["run"]:  # its own handler takes over when it has something to hand back
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        gc.set_threshold(*GC_THRESHOLDS)
    from elastic_operator import command_line

    return command_line.main()


if __name__ == "__main__":
    sys.exit(main())

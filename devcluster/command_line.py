"""Runs a command of this project. An error that the user can correct ends it with one line, never with a traceback.

A signal also ends it with one line: the command cleans up first, and its exit status shows the signal.
"""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType

from devcluster import shell
from devcluster.errors import DevclusterError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def run(app: Callable[[], object], *, program: str) -> None:
    """Run the command line `app` of `program` to its end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        app()
    except _Stopped as stopped:
        print(f"{program}: stopped; `make down` takes away a cluster that is still up", file=sys.stderr)
        sys.exit(128 + stopped.number)
    except DevclusterError as error:
        sys.exit(f"{program}: {error}")
    except Exception as error:  # noqa: BLE001
        sys.exit(f"{program}: {_in_one_line(error, program)}")


class _Stopped(BaseException):
    """A signal stopped the command. This is no Exception, so that no handler of errors catches it."""

    def __init__(self, number: int) -> None:
        self.number = number


def _stop(number: int, _frame: FrameType | None) -> None:
    raise _Stopped(number)


def _in_one_line(error: Exception, program: str) -> str:
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"{error}: {shell.DISK_FULL}"
    log = shell.keep(f"{program}-traceback.log", traceback.format_exc())
    said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return f"{said}; this was not foreseen: please report it with {log or 'what you did'}"

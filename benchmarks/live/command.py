"""How a benchmark ends: in good order when a signal comes, with one line when a person can mend what is wrong."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from benchmarks.live.errors import BenchError
from demo.kube import DemoError
from devcluster.errors import DevclusterError


def run(app: typer.Typer) -> None:
    """Run the command line; what it brought up is taken down whatever happens."""
    signal.signal(signal.SIGTERM, _end)
    try:
        app()
    except (BenchError, DemoError, DevclusterError) as error:
        sys.exit(f"bench: {error}")


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit("ended by a signal")

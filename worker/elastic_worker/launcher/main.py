"""Reads the pod's settings and runs its launcher to the end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from elastic_worker import contract
from elastic_worker.launcher import arguments
from elastic_worker.launcher.ending import Ending, write_termination_message
from elastic_worker.launcher.launcher import Launcher
from elastic_worker.logs import set_up
from elastic_worker.processes import linux
from elastic_worker.processes.torchrun import UsageError
from elastic_worker.settings import Settings, SettingsError, read

log = logging.getLogger(__name__)


def run_pod(argv: Sequence[str], *, is_terminating: Callable[[], bool]) -> int:
    """Run until the job is done, has failed, or this pod has left; returns the exit code.

    `is_terminating`: whether SIGTERM has come before the launcher handles it.
    """
    set_up("launcher")
    # A process has two sockets for each peer while two groups exist, and containers may start with a limit of 1,024.
    linux.allow_descriptors()
    try:
        settings, given = read(os.environ), arguments.parse(argv)
        ending = asyncio.run(_run(settings, given, is_terminating))
    except (SettingsError, arguments.ArgumentsError, UsageError) as error:
        ending = Ending(contract.EXIT_DO_NOT_RETRY, str(error))
    if ending.last_lines:
        log.error("%s", ending.last_lines)
    if ending.message:  # at the end of the log, where users look first
        log.error("%s", ending.message)
    write_termination_message(ending)
    sys.stdout.flush()
    return ending.code


async def _run(settings: Settings, given: arguments.Arguments, is_terminating: Callable[[], bool]) -> Ending:
    scratch = Path(tempfile.mkdtemp(prefix="elastic-", dir=settings.scratch))
    try:
        return await Launcher(settings, given, os.environ, scratch).run(is_terminating)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

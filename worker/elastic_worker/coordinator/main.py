"""The coordinator's process. The master's launcher starts it, and restarts it when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from elastic_worker.coordinator.membership import MembershipFile
from elastic_worker.coordinator.server import Coordinator
from elastic_worker.coordinator.state import CoordinatorState, Rules
from elastic_worker.coordinator.succession import GIVE_WAY_SECONDS, Succession
from elastic_worker.logs import set_up
from elastic_worker.proc import die_with
from elastic_worker.settings import Settings, read


def main(*, launcher: int) -> None:
    """Serve until killed, or until the launcher ends, whose pid this is (164)."""
    die_with(launcher)
    # The signal that ends the pod goes to the launcher, which needs the coordinator until it has left.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    set_up("coordinator")
    asyncio.run(_serve(read(os.environ)))


async def _serve(settings: Settings) -> None:
    """Make the coordinator inside its event loop, as Python 3.9 binds asyncio's events to the running loop."""
    await coordinator_of(settings).serve(settings.port)


def coordinator_of(settings: Settings) -> Coordinator:
    """Return a coordinator with these settings."""
    now = time.monotonic()
    rules = Rules(
        align_seconds=settings.align_seconds if settings.checkpoint_path else None,
        grace_seconds=settings.grace_seconds,
        max_failures=settings.max_failures,
        final_exit_codes=settings.final_exit_codes,
        stall_seconds=settings.stall_seconds,
    )
    masters = Succession(settings.checkpoint_path, job_uid=settings.job_uid, epoch=settings.epoch)
    state = CoordinatorState(own_uid=settings.pod_uid, epoch=settings.epoch, rules=rules, started=now, phase_since=now)
    if settings.epoch > 1 and masters.is_known:
        state.gives_way_until = now + GIVE_WAY_SECONDS
    return Coordinator(
        state,
        MembershipFile(Path(settings.membership_file)),
        masters,
        token=settings.token,
        job_uid=settings.job_uid,
        incarnation=settings.incarnation,
    )

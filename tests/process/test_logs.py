"""What failed pods said last is waited for, and never for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from elastic_operator.cluster.errors import Unreachable
from elastic_operator.loop.logs import FailureLogs
from tests.plan.jobs import ended, make_pod

FAILED = ended(make_pod(), 1, message="what the kubelet kept")


@dataclass
class Answer:
    """A session whose one answer is a log, or what is raised instead."""

    log: bytes | Exception

    async def get_bytes(self, path: str, *, params: dict[str, str]) -> bytes:  # noqa: ARG002 - as Session
        if isinstance(self.log, Exception):
            raise self.log
        return self.log


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (b"KeyError: 'accuracy'", "KeyError: 'accuracy'"),
        (b"Root Cause (first observed failure):\n  rank : " + b"9" * 5000, "9" * 9),
        (Unreachable("no answer"), "what the kubelet kept"),
        (ValueError("nobody thought of this"), "what the kubelet kept"),
    ],
    ids=["a log", "a rank of 5,000 digits", "no answer", "a mistake of ours"],
)
async def test_a_failed_pod_counts_as_running_only_until_its_log_was_read(log: bytes | Exception, told: str):
    read = asyncio.Event()
    logs = FailureLogs(Answer(log), lambda _: "pytorch", read.set)
    (before,) = logs.as_read("team-a", (FAILED,))
    assert (before.phase, before.main.exit_code) == ("Running", None)
    async with asyncio.timeout(5):
        await read.wait()
    (after,) = logs.as_read("team-a", (FAILED,))
    assert (after.phase, after.main.exit_code) == ("Failed", 1)
    assert told in after.main.message

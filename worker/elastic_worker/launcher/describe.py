"""What became of a training process, in words that fit into a status."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

MOST_CHARACTERS = 1500
"""Of a traceback; its end says what went wrong."""

CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "gloo/transport",
    "NCCL error",
    "ncclRemoteError",
    "NCCL operation",
    "NCCL communicator was aborted",
    "NCCL Async Error",
    "NCCL Last Error",
    "Timed out waiting",
)
"""What a process says that failed because another one had. Those from "NCCL operation" on are said by what torch 2.15
makes of the name "nccl"; they were read in its sources and in its library, as there was no GPU to hear them on."""


def what_happened(rank: int, code: int, error: Mapping[str, Any] | None) -> str:
    """One process's end: its rank, how it ended, and the end of its traceback if it left one."""
    if code < 0:
        how = f"was killed by {_signal(-code)}"
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"rank {rank} {how}{hint}"
    said = str((error or {}).get("traceback") or (error or {}).get("message") or "").strip()
    how = "failed in communication" if is_consequence(said) else "failed"
    return f"rank {rank} {how} with exit code {code}" + (f": {said[-MOST_CHARACTERS:]}" if said else "")


def is_consequence(told: str) -> bool:
    """Whether it failed because another one had, from what it said."""
    return any(sign in told for sign in CONSEQUENCES)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

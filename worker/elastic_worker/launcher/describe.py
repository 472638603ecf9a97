"""Describes the end of a training process in a sentence that fits into a status."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

MOST_CHARACTERS = 1500
"""The longest part of a traceback that is shown: its end, which says what went wrong."""

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
"""Texts of errors in a process that failed because another one had failed.

Those from "NCCL operation" on are torch 2.15's for the backend "nccl". They were found in its sources and its library,
and were not observed on a GPU.
"""


def what_happened(rank: int, code: int, error: Mapping[str, Any] | None) -> str:
    """A sentence on one process's end: its rank, its exit code or signal, and the end of its traceback if there is one.

    `code` is minus the signal's number for a signal; `error` is what `failure.read` returns.
    """
    if code < 0:
        how = f"was killed by {_signal(-code)}"
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"rank {rank} {how}{hint}"
    text = str((error or {}).get("traceback") or (error or {}).get("message") or "").strip()
    how = "failed in communication" if is_consequence(text) else "failed"
    return f"rank {rank} {how} with exit code {code}" + (f": {text[-MOST_CHARACTERS:]}" if text else "")


def is_consequence(why: str) -> bool:
    """Whether a process with this message failed because another one had failed."""
    return any(sign in why for sign in CONSEQUENCES)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""Clocks that step: the operator's own, and the API server's as the operator sees it. This machine's stays as it is."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

from multidict import CIMultiDict

from tests.apiserver.faults.proxy import Filter
from tests.apiserver.operators import eventually
from tests.kit.requests import Request

LIBRARIES = Path("/usr/lib")
STAMPED = re.compile(r"/(pods|nodes)(/|$)")
TIMES = re.compile(rb'"(?:creationTimestamp|deletionTimestamp|lastTransitionTime|startedAt|finishedAt)":\s*"([^"]+Z)"')


class OwnClock:
    """The wall clock of a process that is started with `environ`; its monotonic clock goes on as ever."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self._file.write_text("+0")

    @property
    def environ(self) -> Mapping[str, str]:
        """What the process is to be started with."""
        library = next(LIBRARIES.glob("*/faketime/libfaketime.so.1"), None)
        assert library, "libfaketime is not installed; on Debian: apt-get install libfaketime"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: int) -> None:
        """So far ahead of the real time it is from now on."""
        self._file.write_text(f"{seconds:+d}")


class ServerClock(Filter):
    """The API server's clock: its Date headers, and the times of pods and nodes that it wrote since the step.

    The operator's own times, in jobs, are nothing to the API server: they stay as they were written.
    """

    def __init__(self) -> None:
        self._seconds, self._since = 0, float("inf")
        self._told = threading.Event()

    def step(self, seconds: int) -> None:
        """Step by that much, at the turn of a second: a time in whole seconds tells on which side it was written."""
        self._told.clear()
        turn = float(int(time.time()) + 1)
        while (left := turn - time.time()) > 0:
            time.sleep(left)
        self._since, self._seconds = turn, seconds

    def wait_until_told(self) -> None:
        """Until a response has shown the step."""
        eventually("a request of the operator's", self._told.is_set)

    def headers(self, _: Request, headers: CIMultiDict[str]) -> None:
        """The Date."""
        if "Date" in headers:
            date = parsedate_to_datetime(headers["Date"]) + timedelta(seconds=self._seconds)
            headers["Date"] = format_datetime(date, usegmt=True)
            if self._seconds:
                self._told.set()

    def body(self, request: Request, data: bytes) -> bytes:
        """The times of pods and nodes."""
        return TIMES.sub(self._shown, data) if self._seconds and STAMPED.search(request.path) else data

    def _shown(self, found: re.Match[bytes]) -> bytes:
        written = datetime.fromisoformat(found[1].decode())
        if written.timestamp() < self._since:
            return found[0]
        shown = (written + timedelta(seconds=self._seconds)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return found[0].replace(found[1], shown.encode())

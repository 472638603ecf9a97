"""Reads the operator's list of pods from the file in which the kubelet keeps the master pod's annotation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elastic_worker.coordinator.model import Membership

POLL_SECONDS = 0.05
"""How often the file is read, at 10 us each: the kubelet replaces it by swapping a symbolic link."""


class MembershipFile:
    """The file at `path`. `problem` is why its content cannot be parsed; "" if it can."""

    def __init__(self, path: Path) -> None:
        self.path, self.problem = path, ""
        self._text: str | None = None
        self._membership: Membership | None = None

    def look(self) -> Membership | None:
        """Return the latest membership; None while there is none. A malformed one leaves the previous one in place."""
        try:
            text = self.path.read_text()
        except OSError:
            return self._membership
        if text != self._text:
            self._text = text
            self._take(text)
        return self._membership

    def _take(self, text: str) -> None:
        if not text.strip():
            return
        try:
            membership = parse(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            self.problem = f"the membership annotation cannot be read: {error!r}"
            return
        self.problem = ""
        if self._membership is None or membership.number > self._membership.number:
            self._membership = membership


def parse(record: Any) -> Membership:
    """Parse the annotation's JSON (`contract.ANNOTATION_MEMBERSHIP`). Raises KeyError, TypeError or ValueError."""
    return Membership(
        number=int(record["wish"]),
        members=frozenset(str(member["uid"]) for member in record["members"]),
        fewest=int(record.get("min", 1)),
        most=int(record.get("max", 4096)),
        sizes=tuple(int(size) for size in record.get("sizes", ())),
        step=max(1, int(record.get("step", 1))),
        has_successor=bool(record.get("successor", True)),
    )

"""Reads the operator's wish from the file in which the kubelet keeps the master pod's annotation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elastic_worker.coordinator.model import Wish

POLL_SECONDS = 0.05
"""How often the file is read, at 10 us each: the kubelet replaces it by swapping a symbolic link."""


class WishFile:
    """The file at `path`. `problem` is why its content cannot be parsed; "" if it can."""

    def __init__(self, path: Path) -> None:
        self.path, self.problem = path, ""
        self._text: str | None = None
        self._wish: Wish | None = None

    def look(self) -> Wish | None:
        """Return the latest wish; None while there is none. A malformed wish leaves the previous one in place."""
        try:
            text = self.path.read_text()
        except OSError:
            return self._wish
        if text != self._text:
            self._text = text
            self._take(text)
        return self._wish

    def _take(self, text: str) -> None:
        if not text.strip():
            return
        try:
            wish = parse(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            self.problem = f"the membership annotation cannot be read: {error!r}"
            return
        self.problem = ""
        if self._wish is None or wish.number > self._wish.number:
            self._wish = wish


def parse(wish: Any) -> Wish:
    """Parse the annotation's JSON (`contract.ANNOTATION_MEMBERSHIP`). Raises KeyError, TypeError or ValueError."""
    return Wish(
        number=int(wish["wish"]),
        members=frozenset(str(member["uid"]) for member in wish["members"]),
        fewest=int(wish.get("min", 1)),
        most=int(wish.get("max", 4096)),
        sizes=tuple(int(size) for size in wish.get("sizes", ())),
        step=max(1, int(wish.get("step", 1))),
        has_successor=bool(wish.get("successor", True)),
    )

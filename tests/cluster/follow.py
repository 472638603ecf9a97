"""Everything that becomes of the objects of some collections, from watches: nothing is missed between two looks."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Self

from tests.cluster.lab import Lab, Object

ROUND_SECONDS = 2


class Follow:
    """Watches the collections at these paths while it is open; `changes` are the objects after each change."""

    def __init__(self, lab: Lab, *paths: str) -> None:
        self.lab, self.paths = lab, paths
        self._changes: list[Object] = []
        self._troubles: list[Exception] = []
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for path in self.paths:
            found = self.lab.get(path)
            thread = threading.Thread(target=self._follow, args=(path, found["metadata"]["resourceVersion"]))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    @property
    def changes(self) -> list[Object]:
        """Those so far; of each collection in order."""
        assert not self._troubles, self._troubles
        return list(self._changes)

    def noted(self) -> None:
        """Called after each change, in a thread."""

    def _follow(self, path: str, revision: str) -> None:
        try:
            while not self._done.is_set():
                revision = self._round(path, revision)
        except Exception as error:  # noqa: BLE001 - told when somebody asks what was seen
            self._troubles.append(error)

    def _round(self, path: str, revision: str) -> str:
        """One watch; returns where the next is to go on."""
        params = {"watch": "1", "resourceVersion": revision, "timeoutSeconds": str(ROUND_SECONDS)}
        with self.lab.http.stream("GET", path, params={**params, "allowWatchBookmarks": "true"}) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                revision = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._changes.append(event["object"])
                    self.noted()
        return revision

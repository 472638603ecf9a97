"""Everything that was ever made in a namespace, from watches: what was there for a moment only is seen, too."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from elastic_worker.contract import LABEL_INCARNATION, LABEL_JOB_UID
from tests.cluster.lab import Lab, Object

CORE, DISCOVERY = "/api/v1/namespaces", "/apis/discovery.k8s.io/v1/namespaces"
ROUND_SECONDS = 2
T = TypeVar("T")


class Births:
    """Watches pods, services and endpoint slices while it is open; `seen` holds them by uid, as they were last."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self.lab = lab
        self.paths = [f"{CORE}/{namespace}/pods", f"{CORE}/{namespace}/services"]
        self.paths.append(f"{DISCOVERY}/{namespace}/endpointslices")
        self.seen: dict[str, Object] = {}
        self.troubles: list[Exception] = []
        self._news = threading.Event()
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

    def wait_for_news(self, begin: Callable[[], T], *, seconds: float) -> T:
        """Begin something, and wait for the first change that comes after that, for at most so long."""
        self._news.clear()
        begun = begin()
        self._news.wait(seconds)
        return begun

    def pods_of(self, job_uid: str) -> Counter[int]:
        """How many pods the job was ever given, by incarnation."""
        return Counter(
            int(each["metadata"]["labels"][LABEL_INCARNATION]) for each in self._of(job_uid) if each["kind"] == "Pod"
        )

    def others_of(self, job_uid: str) -> Counter[str]:
        """How many objects beside pods were ever made for the job, by kind."""
        return Counter(each["kind"] for each in self._of(job_uid) if each["kind"] != "Pod")

    def _of(self, job_uid: str) -> list[Object]:
        assert not self.troubles, self.troubles
        return [each for each in self.seen.values() if each["metadata"].get("labels", {}).get(LABEL_JOB_UID) == job_uid]

    def _follow(self, path: str, revision: str) -> None:
        try:
            while not self._done.is_set():
                revision = self._round(path, revision)
        except Exception as error:  # noqa: BLE001 - told when somebody asks what was seen
            self.troubles.append(error)

    def _round(self, path: str, revision: str) -> str:
        """One watch; returns where the next is to go on."""
        params = {"watch": "1", "resourceVersion": revision, "timeoutSeconds": str(ROUND_SECONDS)}
        with self.lab.http.stream("GET", path, params={**params, "allowWatchBookmarks": "true"}) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                revision = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.seen[event["object"]["metadata"]["uid"]] = event["object"]
                    self._news.set()
        return revision

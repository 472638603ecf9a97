"""Everything that was ever made in a namespace: what was there for a moment only is seen, too."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from elastic_worker.contract import LABEL_INCARNATION, LABEL_JOB_UID
from tests.cluster.follow import Follow
from tests.cluster.lab import Lab, Object

CORE, DISCOVERY = "/api/v1/namespaces", "/apis/discovery.k8s.io/v1/namespaces"
T = TypeVar("T")


class Births(Follow):
    """Watches pods, services and endpoint slices of a namespace while it is open."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        core, discovery = f"{CORE}/{namespace}", f"{DISCOVERY}/{namespace}"
        super().__init__(lab, f"{core}/pods", f"{core}/services", f"{discovery}/endpointslices")
        self._news = threading.Event()

    def noted(self) -> None:
        """Whoever waits goes on."""
        self._news.set()

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
        """As they were last."""
        seen = {each["metadata"]["uid"]: each for each in self.changes}
        return [each for each in seen.values() if each["metadata"].get("labels", {}).get(LABEL_JOB_UID) == job_uid]

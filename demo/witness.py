"""A thread that watches the pods of some namespaces during a demo, and keeps a register of their lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from kubernetes import watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from demo.kube import Kube
from demo.lives import Life, Register, Sighting

WATCH_SECONDS = 60
PAUSE_SECONDS = 0.5


class Witness:
    """Lives of the pods of `namespaces`; seconds count from `started` of the monotonic clock.

    It watches within its context. A broken watch is followed by a list, so only the times in between are missed.
    """

    def __init__(self, kube: Kube, namespaces: Collection[str], *, started: float) -> None:
        self._register = Register()
        self._namespaces = frozenset(namespaces)
        self._started = started
        self._core, _ = kube.apis()
        self._stop = threading.Event()
        self._watch = watch.Watch()  # type: ignore[no-untyped-call]
        self._thread = threading.Thread(target=self._run, daemon=True, name="witness")
        self._told = 0

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._watch.stop()  # type: ignore[no-untyped-call]

    def lives(self, namespace: str) -> list[Life]:
        """The pods of a namespace, removed ones included, in the order in which they were first seen."""
        return [life for life in list(self._register.lives.values()) if life.namespace == namespace]

    def news(self) -> list[Sighting]:
        """The sightings since the last call."""
        found = self._register.sightings[self._told :]
        self._told += len(found)
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow(self._list())
            except (ApiException, HTTPError):  # the API server is away, or the watch too old: list again
                self._stop.wait(PAUSE_SECONDS)

    def _list(self) -> str:
        """Note all existing pods; return the resource version to watch from."""
        listed = self._core.api_client.sanitize_for_serialization(self._core.list_pod_for_all_namespaces())
        self._register.note_all([pod for pod in listed["items"] if self._cares(pod)], seconds=self._now())
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _follow(self, version: str) -> None:
        changes = self._watch.stream(  # type: ignore[no-untyped-call]
            self._core.list_pod_for_all_namespaces, resource_version=version, timeout_seconds=WATCH_SECONDS
        )
        for change in changes:
            pod: dict[str, Any] = change["raw_object"]
            if not self._cares(pod):
                continue
            self._register.note(pod, seconds=self._now())
            if change["type"] == "DELETED":
                self._register.note_gone(pod["metadata"]["uid"], seconds=self._now())

    def _cares(self, pod: dict[str, Any]) -> bool:
        return pod["metadata"]["namespace"] in self._namespaces

    def _now(self) -> float:
        return time.monotonic() - self._started

"""The shared cluster's control plane when it stalls or loses its history, and its operator when it stands still."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.cluster import processes
from tests.cluster.lab import OPERATOR_NAMESPACE, Lab, wait
from tests.cluster.leader import Leader

METRIC = "elastic_pytorch_watch_relists_total"
STALL_SECONDS, CALM_SECONDS = 2.0, 1.0


class Stalls:
    """While this is open the API server stands still most of the time, again and again. `count` says how often."""

    def __init__(self, lab: Lab) -> None:
        self.api_server, self.count = lab.cluster.part("apiserver"), 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._stall)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _stall(self) -> None:
        while not self._done.wait(CALM_SECONDS):
            self.api_server.freeze()
            self.count += 1
            self._done.wait(STALL_SECONDS)
            self.api_server.thaw()


@contextlib.contextmanager
def operators_frozen(lab: Lab) -> Iterator[None]:
    """All replicas stand still meanwhile, their connections open."""
    found = processes.of_operators(lab.cluster)
    assert found
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # the kubelet may have ended what did not answer
                os.kill(pid, signal.SIGCONT)


def forget_history(lab: Lab) -> None:
    """Compact etcd, and start whoever remembers more again: the API server, and its clients, which bear no gaps."""
    lab.cluster.compact()
    lab.cluster.part("apiserver").restart()
    wait("the API server to be ready", lab.cluster.api.is_ready)
    for part in ("scheduler", "controller-manager"):
        lab.cluster.part(part).restart()


def relists(lab: Lab) -> dict[tuple[str, int], float]:
    """How often each replica has listed all pods again, by pod and by how often its container was started again.

    NaN, which is not less nor more than anything, for one that does not answer.
    """
    return {(pod, restarts): _relists(lab, pod) for pod, restarts in Leader(lab).restarts().items()}


def _relists(lab: Lab, pod: str) -> float:
    answer = lab.http.get(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:8080/proxy/metrics")
    if not answer.is_success:
        return math.nan
    series = METRIC + '{kind="pods"} '
    return next(float(line.removeprefix(series)) for line in answer.text.splitlines() if line.startswith(series))

"""What failed pods said last. A failed pod is shown to the planner only once its log was read, or cannot be.

torchrun's summary pushes the traceback out of the 2 kB that the kubelet keeps, so the tail of the log is read instead,
while the pod object still exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from elastic_operator.build.traceback import MAX_LOG, TAIL_LINES, Failure, failure_of
from elastic_operator.cluster import apply
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.session import Session
from elastic_operator.plan.job import OwnPod
from elastic_worker.contract import MAIN_CONTAINER

log = logging.getLogger(__name__)

READ_SECONDS = 3.0
KEPT = 1000


class FailureLogs:
    """Reads the logs of pods that failed, once each."""

    def __init__(self, session: Session, container_of: Callable[[str], str], changed: Callable[[], None]) -> None:
        self.session, self.container_of, self.changed = session, container_of, changed
        self._said: dict[str, Failure] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    def as_read(self, namespace: str, pods: tuple[OwnPod, ...]) -> tuple[OwnPod, ...]:
        """The pods as the planner may see them: failed ones with what they said, or not failed yet."""
        if not any(map(_is_worth_reading, pods)):
            return pods
        return tuple(self._as_read(namespace, pod) if _is_worth_reading(pod) else pod for pod in pods)

    def _as_read(self, namespace: str, pod: OwnPod) -> OwnPod:
        if pod.uid in self._said:
            said = self._said[pod.uid]
            told = _in_words(said) or pod.main.message
            return replace(pod, main=replace(pod.main, message=told, is_consequence=said.secondary))
        if pod.uid not in self._reading:
            self._reading[pod.uid] = asyncio.create_task(self._read(namespace, pod))
        running = replace(pod.main, exit_code=None, finished_at=None, reason="", message="")
        return replace(pod, phase="Running", main=running)

    async def _read(self, namespace: str, pod: OwnPod) -> None:
        """Keep what the pod said. Whatever goes wrong, it is not waited for any longer: at worst it said nothing."""
        said = Failure()
        try:
            said = failure_of(await self._log_of(namespace, pod))
        except (ClusterError, TimeoutError) as error:
            log.info("pod=%s/%s its log cannot be read: %s", namespace, pod.name, error)
        except Exception:
            log.exception("pod=%s/%s its log is beyond understanding", namespace, pod.name)
        finally:
            self._reading.pop(pod.uid, None)
        if len(self._said) >= KEPT:
            self._said.pop(next(iter(self._said)))
        self._said[pod.uid] = said
        self.changed()

    async def _log_of(self, namespace: str, pod: OwnPod) -> str:
        container = self.container_of(pod.uid) or MAIN_CONTAINER
        async with asyncio.timeout(READ_SECONDS):
            return await apply.read_log_tail(
                self.session, namespace, pod.name, container, lines=TAIL_LINES, max_bytes=MAX_LOG
            )


def _in_words(failure: Failure) -> str:
    known = []
    if failure.rank is not None:
        known.append(f"rank {failure.rank}")
    if failure.exit_code is not None:
        known.append(f"exit code {failure.exit_code}")
    return ", ".join(known) + (":\n" if known else "") + failure.traceback


def _is_worth_reading(pod: OwnPod) -> bool:
    """Whether its log can tell why the job failed."""
    return bool(pod.main.exit_code) and not pod.disrupted and pod.deleting_since is None

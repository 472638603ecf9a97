"""A stand-in for kopf. Like kopf, it reports no deletion that it missed, and ends on an unexpected event."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

from elastic_operator.cluster.errors import ClusterError, Expired
from elastic_operator.cluster.reflector import in_namespace
from elastic_operator.cluster.session import Session
from elastic_operator.job_informer import JOBS, NO_JOB, WATCH_SECONDS, JobInformer
from elastic_operator.kopf_host import EndlessPauses

FOR_EVER = 1e9


class KopfEndedError(Exception):
    """kopf ends on an unexpected event."""


class Kopf:
    """Watches the jobs of an informer through `session`. Its lists are empty."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __call__(self, informer: JobInformer) -> None:
        """Report events until an unexpected one comes."""
        async with asyncio.TaskGroup() as group:
            for namespace in informer.namespaces or ("",):
                group.create_task(self._follow(namespace, informer))

    async def _follow(self, namespace: str, informer: JobInformer) -> None:
        while True:
            revision = await self._list(namespace, informer)
            try:
                while True:
                    revision = await self._watch(namespace, revision, informer)
            except Expired:
                continue

    async def _list(self, namespace: str, informer: JobInformer) -> str:
        path = in_namespace(JOBS, namespace)
        listed = await self._patiently(lambda: self._session.get(path, params=NO_JOB))
        assert not listed["items"]
        informer.take_list()
        revision: str = listed["metadata"]["resourceVersion"]
        return revision

    async def _watch(self, namespace: str, revision: str, informer: JobInformer) -> str:
        """Watch until the server ends the watch; a broken connection is reopened at the last revision."""
        params = {"watch": "true", "resourceVersion": revision, "timeoutSeconds": str(WATCH_SECONDS)}
        path, pauses = in_namespace(JOBS, namespace), iter(EndlessPauses())
        for _ in count():
            try:
                async with self._session.stream(path, params=params, inactivity=FOR_EVER) as stream:
                    informer.take_answer(namespace)
                    async for data in stream.iter_any():
                        revision = self._tell(json.loads(data), informer)
                return revision
            except Expired:
                raise
            except ClusterError:
                await asyncio.sleep(next(pauses))
                params["resourceVersion"] = revision
        raise AssertionError("counting does not end")

    def _tell(self, event: dict[str, Any], informer: JobInformer) -> str:
        if event["type"] == "ERROR":
            if event["object"]["code"] == 410:
                raise Expired("too old", status=410)
            raise KopfEndedError(event["object"])
        informer.take_event(event["type"], event["object"])
        revision: str = event["object"]["metadata"]["resourceVersion"]
        return revision

    async def _patiently(self, ask: Any) -> Any:
        for pause in EndlessPauses():
            try:
                return await ask()
            except ClusterError:
                await asyncio.sleep(pause)
        raise AssertionError("pauses do not end")

"""A stand-in for kopf. Like kopf, it reports no deletion that it missed, and ends on an unexpected event."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

from elastic_operator.cluster.errors import ClusterError, Expired
from elastic_operator.cluster.session import Session
from elastic_operator.job_informer import JOBS, NO_JOB, WATCH_SECONDS, EventSink, bookmark
from elastic_operator.kopf_host import EndlessPauses

FOR_EVER = 1e9


class KopfEndedError(Exception):
    """kopf ends on an unexpected event."""


class Kopf:
    """Watches all jobs through `session`. Its lists are empty."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __call__(self, take: EventSink) -> None:
        """Until something comes that it does not expect."""
        while True:
            revision = await self._list(take)
            try:
                while True:
                    revision = await self._watch(revision, take)
            except Expired:
                continue

    async def _list(self, take: EventSink) -> str:
        listed = await self._patiently(lambda: self._session.get(JOBS, params=NO_JOB))
        assert not listed["items"]
        take(None, {})
        revision: str = listed["metadata"]["resourceVersion"]
        return revision

    async def _watch(self, revision: str, take: EventSink) -> str:
        """Until the server ends it; a connection that breaks is opened again where it was."""
        params = {"watch": "true", "resourceVersion": revision, "timeoutSeconds": str(WATCH_SECONDS)}
        pauses = iter(EndlessPauses())
        for _ in count():
            try:
                async with self._session.stream(JOBS, params=params, inactivity=FOR_EVER) as stream:
                    take(*bookmark(""))
                    async for data in stream.iter_any():
                        revision = self._tell(json.loads(data), take)
                return revision
            except Expired:
                raise
            except ClusterError:
                await asyncio.sleep(next(pauses))
                params["resourceVersion"] = revision
        raise AssertionError("counting does not end")

    def _tell(self, event: dict[str, Any], take: EventSink) -> str:
        if event["type"] == "ERROR":
            if event["object"]["code"] == 410:
                raise Expired("too old", status=410)
            raise KopfEndedError(event["object"])
        take(event["type"], event["object"])
        revision: str = event["object"]["metadata"]["resourceVersion"]
        return revision

    async def _patiently(self, ask: Any) -> Any:
        for pause in EndlessPauses():
            try:
                return await ask()
            except ClusterError:
                await asyncio.sleep(pause)
        raise AssertionError("pauses do not end")

"""kopf as the watch source of the informer of jobs: it only passes on the events of its watch.

No handler writes, keeps state or can fail: the loop decides, from the stores. kopf takes the process's signal handlers
at its start, and cancels all later tasks of its event loop at its end, so it has a thread and an event loop of its own
(2). Its lists contain no job: with 2,500 jobs they would take 100 MB (173).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import kopf

from elastic_api.job import GROUP, PLURAL, VERSION
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.connection import Connection
from elastic_operator.cluster.lists import PAGE
from elastic_operator.cluster.own_loop import run_in_own_loop
from elastic_operator.cluster.sockets import Sockets
from elastic_operator.job_informer import NO_JOB, WATCH_SECONDS, JobInformer

LOGIN_SECONDS = 600
"""kopf's session uses its token for this long. The kubelet renews service account tokens well before they end."""

IDLE_SECONDS = 0.1
"""The time for which kopf keeps a job's task and queue after an event; 5 s by default (182)."""

HAND_OVER_SECONDS = 0.0002
"""kopf's thread sleeps for this long after it has passed an event on. Meanwhile the loop's thread gets the GIL. Without
that, the rest of kopf's work on the event comes first, 0.3 ms.
"""
BETWEEN_HAND_OVERS_SECONDS = 0.01
"""Of events that follow each other faster, kopf's thread sleeps after the first only. After each sleep it needs the GIL
again, for which it waits up to 5 ms during a pass.
"""

IDENTITY = ("name", "namespace", "uid", "resourceVersion")
"""The fields of metadata that kopf reads after it has passed an event on."""


class NoDiffs(kopf.MultiDiffBaseStorage):
    """Compares and stores nothing, because there is no change handler. kopf's own one would copy each object."""

    def __init__(self) -> None:
        super().__init__(())

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002
        return kopf.BodyEssence({})


async def run_kopf(connection: Connection, informer: JobInformer) -> None:
    """Run kopf for the jobs of the informer until it ends. The informer gets the events in the caller's event loop."""
    quiet()
    ours = asyncio.get_running_loop()
    await run_in_own_loop(lambda: _run(connection, informer, ours))


async def _run(connection: Connection, informer: JobInformer, ours: asyncio.AbstractEventLoop) -> None:
    sockets = Sockets()
    passed_on_at = -math.inf

    async def login(**_: Any) -> kopf.AiohttpSession:
        authorization = asyncio.run_coroutine_threadsafe(connection.credentials.header(), ours)
        return _session(connection, await asyncio.wrap_future(authorization), ask, sockets)

    async def pass_on(type: str | None, event: kopf.RawEvent, **_: Any) -> None:
        nonlocal passed_on_at
        ours.call_soon_threadsafe(informer.take_event, type, taken_out(event["object"]))
        before, passed_on_at = passed_on_at, time.monotonic()
        if passed_on_at - before > BETWEEN_HAND_OVERS_SECONDS:
            time.sleep(HAND_OVER_SECONDS)  # noqa: ASYNC251 - the whole thread must let go of the GIL

    async def ask(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send a request of kopf. Of its list, kopf gets the resourceVersion only, from which it watches (173)."""
        request.server_hostname = connection.server_hostname  # kopf itself passes no such name on
        of_jobs, watches = request.url.path.endswith(f"/{PLURAL}"), "watch" in request.url.query
        if of_jobs and not watches:
            request.url = request.url.update_query(NO_JOB)
        response = await send(request)
        if of_jobs and response.ok and watches:
            ours.call_soon_threadsafe(informer.take_answer, namespace_in(request.url.path))
        elif of_jobs and response.ok:
            ours.call_soon_threadsafe(informer.take_list)
        return response

    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(pass_on)
    where: dict[str, Any] = {"namespaces": informer.namespaces} if informer.namespaces else {"clusterwide": True}
    try:
        await kopf.operator(registry=registry, settings=kopf_settings(), standalone=True, **where)
    finally:
        await sockets.closed()


def _session(
    connection: Connection, authorization: str | None, middleware: aiohttp.ClientMiddlewareType, sockets: Sockets
) -> kopf.AiohttpSession:
    tls = connection.tls or True
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=sockets.make),
        headers={"Authorization": authorization} if authorization else {},
        middlewares=(middleware,),
    )
    return kopf.AiohttpSession(
        server=connection.base_url,
        aiohttp_session=session,
        expiration=datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS),
    )


def taken_out(body: Any) -> dict[str, Any]:
    """The object of an event. Only its identity stays in `body`, which kopf keeps.

    kopf's views of an object refer to each other, so they stay until the garbage collector's next full collection. A
    whole job would stay with them after each of its events (182).
    """
    found = dict(body)
    body.clear()
    body["metadata"] = {name: value for name, value in found["metadata"].items() if name in IDENTITY}
    return found


def namespace_in(path: str) -> str:
    """The namespace whose collection is at that path; "" for the collection of all namespaces."""
    *_, kind, name, _ = path.split("/")
    return name if kind == "namespaces" else ""


class EndlessPauses:
    """The pauses between kopf's repetitions of one request: growing, jittered, endless."""

    def __iter__(self) -> Iterator[float]:
        backoff = Backoff()
        while True:
            yield backoff.next()


def kopf_settings() -> kopf.OperatorSettings:
    """Settings for kopf as a watch source only: it writes, scans and locks nothing, with a time limit for requests."""
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = NoDiffs()  # without a storage in it, nothing is stored
    settings.persistence.progress_storage = kopf.MultiProgressStorage(())
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.request_timeout = 15
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = EndlessPauses()  # otherwise it ends after a minute of 403 or 5xx
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.watching.chunk_size = PAGE
    settings.watching.server_timeout = WATCH_SECONDS
    settings.process.ultimate_exiting_timeout = None  # otherwise kopf kills this process some time after kopf ended
    return settings


def quiet() -> None:
    """Drop kopf's line about each handled event."""
    for name in ("kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # kopf logs that it gets no signals, which is intended, and the reason of its end, which JobInformer logs.
    logging.getLogger("kopf._core").setLevel(logging.CRITICAL)

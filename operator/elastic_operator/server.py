"""/healthz, /readyz and /metrics on one port. The first two are open to all, because the kubelet sends no token.

Healthy: the event loop turns; on a leader, passes are made. Ready: the process is up. A standby is ready too, because
it can take over at any time, unless the cluster belongs to another installation (81).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from elastic_operator.cluster.metrics_access import ALLOWED, PATH, MetricsAccess
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.stats import OperatorStats


@asynccontextmanager
async def serving(
    port: int,
    metrics: Metrics,
    *,
    health: Callable[[], str],
    stats: Callable[[], OperatorStats],
    unready: Callable[[], str] = str,
    metrics_access: MetricsAccess | None = None,
) -> AsyncIterator[int]:
    """Serve while the context is open; yields the port. `health` and `unready` return "" or what is wrong.

    Metrics name the jobs of all namespaces, so `metrics_access`, if given, decides which accounts may read them (97). A
    request for metrics gets the `stats` of that moment, rendered in a thread, because with a thousand jobs this takes
    longer than watches and writes should wait (74). Requests are rendered one at a time.
    """
    one_at_a_time = asyncio.Lock()

    async def numbers(request: web.Request) -> web.Response:
        verdict = (
            await metrics_access.authorize(request.headers.get("Authorization", "")) if metrics_access else ALLOWED
        )
        if verdict != ALLOWED:
            headers = {"WWW-Authenticate": "Bearer"} if verdict.status == web.HTTPUnauthorized.status_code else {}
            return web.Response(text=verdict.text, status=verdict.status, headers=headers)
        async with one_at_a_time:
            text = await asyncio.to_thread(metrics.text, stats())
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", _well_unless(health)), web.get("/readyz", _well_unless(unready)), web.get(PATH, numbers)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, None, port)
    try:
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await asyncio.shield(runner.cleanup())


def _well_unless(fault: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = fault()
        return web.Response(text=wrong or "ok", status=503 if wrong else 200)

    return answer

"""The operator's session with the in-memory API server, which answers at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.errors import api_error
from elastic_operator.cluster.session import MAX_WRITES
from elastic_operator.cluster.write_queue import WriteQueue
from tests.kit.requests import Request
from tests.simulate.api import Api, RefusedError
from tests.simulate.faults import Faults
from tests.simulate.server import JOBS, PODS, Body


@dataclass(frozen=True, slots=True)
class Write:
    """What the operator did to a pod: `verb` is POST, DELETE or NOMINATE, `pod` the pod as it was then.

    `promised` are the pods that were nominated then, with the nodes.
    """

    verb: str
    pod: Body
    promised: Mapping[str, str] = field(default_factory=dict)


class Wire:
    """The same methods as a session has; `pod_writes` are what it did to pods."""

    def __init__(self, api: Api, faults: Faults) -> None:
        self.api, self.faults = api, faults
        self.clock = ServerClock(api.server.clock.monotonic)
        self.pod_writes: list[Write] = []
        self.writes = WriteQueue(MAX_WRITES)

    def remaining(self) -> float:
        """The one operator always leads."""
        return inf

    async def get(self, path: str, **_: object) -> Body:
        """One object."""
        return self._carry_out(Request("GET", path))

    async def get_bytes(self, path: str, **_: object) -> bytes:
        """A log: programs here say nothing."""
        self._carry_out(Request("GET", path))
        return b""

    async def post(self, path: str, body: Body, *, params: Mapping[str, str] | None = None) -> Body:
        """Create an object, or ask whether it could be."""
        if "dryRun" in (params or {}):
            return self._carry_out(Request("POST", path, query=params or {}, body=body))
        return self._write("POST", path, body)

    async def put(self, path: str, body: Body) -> Body:
        """Replace an object."""
        return self._carry_out(Request("PUT", path, body=body))

    async def patch(self, path: str, body: Body, *, content_type: str = "", **_: object) -> Body:
        """Merge into an object, or its status."""
        return self._write("PATCH", path, body, strategic="strategic" in content_type)

    async def delete(self, path: str, options: Body) -> Body:
        """Delete an object."""
        return self._write("DELETE", path, options)

    def _write(self, method: str, path: str, body: Body, *, strategic: bool = False) -> Body:
        of_pods, request = f"/{PODS}" in path, Request(method, path, body=body, strategic=strategic)
        if not of_pods and f"/{JOBS}" not in path:
            return self._carry_out(request)
        effect = partial(self._done_to_a_pod if of_pods else self._carry_out, request)
        return self.faults.through(effect, of_version=method == "PATCH")

    def _done_to_a_pod(self, request: Request) -> Body:
        promised = self._promised()
        old = self._carry_out(Request("GET", request.path)) if request.method == "DELETE" else {}
        new = self._carry_out(request)
        if request.method == "POST":
            self.pod_writes.append(Write("POST", new))
        elif request.path.endswith("/status"):
            self.pod_writes.append(Write("NOMINATE", new))
        elif old and "deletionTimestamp" not in old["metadata"]:
            self.pod_writes.append(Write("DELETE", old, promised))
        return new

    def _promised(self) -> dict[str, str]:
        waiting = [pod for pod in self.api.server.all(PODS) if "nominatedNodeName" in pod["status"]]
        return {pod["metadata"]["uid"]: pod["status"]["nominatedNodeName"] for pod in waiting}

    def _carry_out(self, request: Request) -> Any:
        try:
            return self.api.carry_out(request)[1]
        except RefusedError as error:
            raise api_error(error.status, error.answer.body) from error

"""An operator that is watched: what it asked of the API server, and what its metrics say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.apiserver.faults.lab import World
from tests.apiserver.faults.proxy import Proxy, Request
from tests.apiserver.operators import Operator, Operators
from tests.kit.requests import deletes_a_pod, nominates

Start = Callable[..., "Observed"]
Step = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Observed:
    """A running operator behind a proxy."""

    operator: Operator
    proxy: Proxy

    @classmethod
    def start(cls, operators: Operators, proxy: Proxy, settings: Mapping[str, object]) -> Observed:
        """With these settings, named as variables are: RECLAIM__MODE. All of them are one candidate for the lease.

        The proxy forgets what it knew of the one before, and what it was to do to it.
        """
        proxy.heal()
        proxy.before, proxy.after, proxy.one_write_at_a_time = _pass, _pass, False
        proxy.log.clear()
        environ = {f"ELASTIC_OPERATOR_{name}": str(value) for name, value in settings.items()}
        return cls(operators.start(server=proxy.url, environ={"POD_UID": "one-pod", **environ}), proxy)

    def text(self) -> str:
        """Everything it has logged."""
        return self.operator.text()

    def see_passes(self, world: World, count: int = 5) -> None:
        """Change something of a node so many times; each time the operator looks at everything again."""
        world.see_passes(self.operator, count)

    def deletes(self) -> list[str]:
        """The names of pods that it asked to be deleted, in that order."""
        return [entry.request.path.rsplit("/", 1)[1] for entry in self.proxy.requests(where=deletes_a_pod)]

    def steps(self) -> list[Step]:
        """What it did about pods: ("reserve", pod, node), ("withdraw", pod, ""), ("delete", pod, "").

        A reservation is told once, however often kube-scheduler takes the nomination away and it is made again.
        """
        steps: list[Step] = []
        reserved: dict[str, str] = {}
        for entry in self.proxy.requests(where=lambda request: deletes_a_pod(request) or nominates(request)):
            kind, pod, node = _step(entry.request)
            if kind == "reserve" and reserved.get(pod) == node:
                continue
            reserved[pod] = node
            steps.append((kind, pod, node))
        return steps


def _step(request: Request) -> Step:
    parts = request.path.split("/")
    if request.method == "DELETE":
        return "delete", parts[-1], ""
    node = json.loads(request.body)["status"]["nominatedNodeName"]
    return "reserve" if node else "withdraw", parts[-2], node or ""


def _pass(*_: object) -> None:
    """Nothing is in a request's way."""

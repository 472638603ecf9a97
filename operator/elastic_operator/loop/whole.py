"""Which gangs of foreign pods are whole, so that places may be planned for them (144).

Nothing says how many pods a gang will have: a controller makes them one after the other, and kube-scheduler tries them
one after the other. So a gang is whole when it has not grown for a second and kube-scheduler has found no room for any
of its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from elastic_operator.plan.model import Request

SETTLED_SECONDS = 1.0
"""At the 20 requests a second that kube-controller-manager makes by default, it makes twenty pods in that time."""
MOST_PODS = 1_000
GROWS = "its gang is still being made"
OTHERS_WAIT = "another pod of its gang is not known to wait for GPUs alone"
TOO_LARGE = f"its gang has more than {MOST_PODS:,} pods"


@dataclass(frozen=True, slots=True)
class _Gang:
    """The pods (uids) that were seen waiting, and when (epoch seconds) one was seen first."""

    uids: frozenset[str]
    grown: float


class WholeGangs:
    """Gangs as last looked at. `again_at` is when (epoch seconds) time alone makes one of them whole."""

    def __init__(self) -> None:
        self._gangs: dict[str, _Gang] = {}
        self._held_back: dict[str, tuple[Request, Request]] = {}
        self.again_at = inf

    def hold_back(self, waiting: Mapping[str, Mapping[str, Request | None]], now: float) -> Mapping[str, Request]:
        """The requests (by uid) that take the place of others, as their gangs cannot be served.

        Args:
            waiting: For each gang, the request of each of its pods (by uid) that wait; None for one that waits for
                something else, or that kube-scheduler has not tried yet.
            now: Epoch seconds.
        """
        before, held_before = self._gangs, self._held_back
        self._gangs, self._held_back, self.again_at = {}, {}, inf
        for name, pods in waiting.items():
            known = before.get(name)
            is_new = known is None or not pods.keys() <= known.uids or known.grown > now
            grown = now if is_new or known is None else known.grown
            self._gangs[name] = _Gang(frozenset(pods) if is_new or known is None else known.uids, grown)
            if now < grown + SETTLED_SECONDS:
                self.again_at = min(self.again_at, grown + SETTLED_SECONDS)
            reason = _reason(pods.values(), settled=now >= grown + SETTLED_SECONDS)
            for uid, request in pods.items() if reason else ():
                if request is not None and not request.promised:
                    self._held_back[uid] = _because(request, reason, held_before.get(uid))
        return {uid: held for uid, (_, held) in self._held_back.items()}


def _reason(requests: Iterable[Request | None], *, settled: bool) -> str:
    """Why the gang cannot be served; "" where it can."""
    requests = list(requests)
    if not settled:
        return GROWS
    if len(requests) > MOST_PODS:
        return TOO_LARGE
    if None in requests:
        return OTHERS_WAIT
    return next((request.unplannable for request in requests if request and request.unplannable), "")


def _because(request: Request, reason: str, before: tuple[Request, Request] | None) -> tuple[Request, Request]:
    """The request and what takes its place; the same objects as before where nothing has changed."""
    if before is not None and before[0] is request and before[1].unplannable == reason:
        return before
    return request, replace(request, unplannable=reason)

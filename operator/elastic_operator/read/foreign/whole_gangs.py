"""Decides which gangs of foreign pods are whole, so that places may be planned for them (144).

The final number of a gang's pods is unknown: a controller creates them one by one, and kube-scheduler tries them one by
one. So a gang counts as whole when it has not grown for a second, and kube-scheduler has found no room for any of its
pods. If a gang may be split, some of its pods may wait for something else than room; such a gang counts as whole once
kube-scheduler has tried each of its pods (190).

It takes a plan for most pods of a large gang to find that there is no room for the gang. So a gang that got nothing
backs off: at first for a second per 32 pods, then twice as long each time, a minute at most. Meanwhile its pods may use
free room one by one, and nothing is preempted for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from math import inf

from elastic_operator.attempts import NEVER_FAILED, Attempts
from elastic_operator.plan.facts.demand import Bar, PreemptionBar
from elastic_operator.plan.facts.foreign_pod import ForeignPod

SETTLED_SECONDS = 1.0
"""At its default of 20 requests a second, kube-controller-manager creates twenty pods in that time."""
MAX_GROWING_SECONDS = 10.0
"""A gang may grow for this long without a second's pause. Then its existing pods are served."""
MAX_UNTRIED_SECONDS = 60.0
"""A gang that may be split waits for this long in all until kube-scheduler has tried each of its pods, and for
`MAX_GROWING_SECONDS` while it tries no further pod. On a busy machine it tries thirteen pods a second.
"""
MAX_PODS_OF_A_GANG = 1_000
PODS_A_SECOND, MAX_GANG_BACKOFF_SECONDS = 32, 60.0


@dataclass(frozen=True, slots=True)
class _Gang:
    """A gang with its waiting pods (uids). Times are epoch seconds.

    `first`: when it began to grow, for the first time or again. `grown`: when it last grew. `untried`: the pods that
    kube-scheduler has not tried yet; `tried`: when this set last changed. `backoff`: how often in a row the gang got
    nothing, and until when it backs off.
    """

    uids: frozenset[str]
    first: float
    grown: float
    untried: frozenset[str] = frozenset()
    tried: float = 0.0
    backoff: Attempts = NEVER_FAILED

    @property
    def settled_at(self) -> float:
        """When the gang may be served, unless it changes."""
        settled_at = min(self.grown + SETTLED_SECONDS, self.first + MAX_GROWING_SECONDS)
        if not self.untried:
            return settled_at
        return max(settled_at, min(self.tried + MAX_GROWING_SECONDS, self.first + MAX_UNTRIED_SECONDS))


class WholeGangs:
    """The gangs at the last refresh. `again_at_epoch` is when places are planned for the next gang without an event."""

    def __init__(self) -> None:
        self._gangs: dict[str, _Gang] = {}
        self._in_this_pass: dict[str, frozenset[str]] = {}
        """The gangs that this pass may serve, and their pods (uids) that have no place yet."""
        self.again_at_epoch = inf

    def without_unsettled(
        self, waiting: Mapping[str, Mapping[str, ForeignPod | None]], untried: Set[str], now: float
    ) -> Mapping[str, ForeignPod]:
        """The foreign pods (by uid) to plan for instead of pods of unsettled gangs: still growing, in back-off, or not
        whole.

        Args:
            waiting: For each gang, its waiting pods (by uid); None for a pod that waits for something else, or that
                kube-scheduler has not tried yet.
            untried: The pods (uids) that kube-scheduler has not tried yet.
            now: Epoch seconds.
        """
        before, instead = self._gangs, dict[str, ForeignPod]()
        self._gangs, self._in_this_pass, self.again_at_epoch = {}, {}, inf
        for name, pods in waiting.items():
            gang = before.get(name)
            if gang is None or gang.grown > now:
                gang = _Gang(frozenset(pods), grown := _grown(pods.values(), now), grown)
            elif not pods.keys() <= gang.uids:
                anew = now >= gang.grown + SETTLED_SECONDS
                gang = replace(gang, uids=frozenset(pods), grown=now, first=now if anew else gang.first)
            if gang.untried != pods.keys() & untried:
                gang = replace(gang, untried=frozenset(pods.keys() & untried), tried=now)
            self._gangs[name] = gang
            self.again_at_epoch = min(
                self.again_at_epoch, *(time for time in (gang.settled_at, gang.backoff.until) if now < time), inf
            )
            can_be_served = now >= gang.settled_at and _can_be_served(pods.values())
            backs_off = can_be_served and now < gang.backoff.until <= now + MAX_GANG_BACKOFF_SECONDS + 1
            is_planned = can_be_served and not backs_off
            if is_planned:
                self._in_this_pass[name] = frozenset(uid for uid, pod in pods.items() if pod and not pod.promised_node)
            for uid, pod in pods.items() if not is_planned or len(pods) == 1 else ():
                if pod is not None and (backs_off or not pod.promised_node):
                    barred = replace(pod.demand, bar=Bar(PreemptionBar.GANG_INCOMPLETE))
                    instead[uid] = replace(pod, demand=pod.demand if is_planned else barred, gang="")
        return instead

    def note_served(self, uids: Set[str], tried: Set[str], now: float) -> list[frozenset[str]]:
        """Note the pods (uids) that got places in a pass. Gangs that were `tried` and got none back off.

        Returns the waiting pods (uids) of each gang that backs off for the first time in a row.
        """
        first_backoffs, backoff = list[frozenset[str]](), NEVER_FAILED
        for name, pods in self._in_this_pass.items():
            gang = self._gangs[name]
            if pods & uids or not pods or len(pods) == 1:
                self._gangs[name] = replace(gang, backoff=NEVER_FAILED)
            elif name in tried:
                backoff = gang.backoff.failed(now, len(pods) / PODS_A_SECOND, MAX_GANG_BACKOFF_SECONDS)
                self._gangs[name] = replace(gang, backoff=backoff)
                self.again_at_epoch = min(self.again_at_epoch, backoff.until)
                first_backoffs += [pods] if not gang.backoff.times else []
        if backoff.times and self._in_this_pass.keys() - tried:  # a pass serves only so many gangs
            self.again_at_epoch = min(self.again_at_epoch, now + SETTLED_SECONDS)
        self._in_this_pass = {}
        return first_backoffs


def _grown(pods: Iterable[ForeignPod | None], now: float) -> float:
    """The latest possible creation time of the youngest of new pods: the API has whole seconds."""
    return min(now, max(pod.demand.created + 1.0 if pod else now for pod in pods))


def _can_be_served(pods: Collection[ForeignPod | None]) -> bool:
    """Whether the gang is not too large, and either all of its pods wait for GPUs alone or it may be split."""
    waiting = [pod for pod in pods if pod is not None]
    all_wait = len(waiting) == len(pods) or all(pod.may_be_split for pod in waiting)
    return len(waiting) <= MAX_PODS_OF_A_GANG and all_wait and not any(pod.unplannable for pod in waiting)

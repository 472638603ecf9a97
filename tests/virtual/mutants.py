"""Mutants: operators that break one rule each, in the lease, the reflector, or the ledger."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.lease import LeaderElector
from elastic_operator.cluster.reflector import Reflector
from elastic_operator.cluster.session import WRITE_SECONDS, Session
from elastic_operator.cluster.store import Store
from elastic_operator.job_informer import JobInformer
from elastic_operator.read.assumed_pods import AssumedPods
from elastic_operator.read.ledger import Ledger
from elastic_operator.watches import Watches

Mutant = Callable[[], Any]
"""Makes a context in which the rule is broken."""


def _instead(target: Any, name: str, new: Any) -> Mutant:
    @contextmanager
    def broken() -> Iterator[None]:
        with patch.object(target, name, new):
            yield

    return broken


# -- the lease -------------------------------------------------------------------------------------------------------


def _counts_from_the_answer(honest: Any = LeaderElector._claim) -> Any:
    async def claim(self: LeaderElector, lease: Any) -> None:
        await honest(self, lease)
        self.deadline = time.monotonic() + self._timing.lease_duration_seconds + 5.0

    return claim


async def _keeps_it_unseen(self: LeaderElector) -> None:
    """Keep the lease without reading it: it is never lost."""
    self.deadline = math.inf
    await asyncio.Event().wait()


async def _nothing(*_: Any, **__: Any) -> None:
    """Not done."""


# -- the stores ------------------------------------------------------------------------------------------------------


async def _watches_on_after_410(self: Reflector[Any]) -> None:
    """Continue the watch instead of a new list."""
    await self._list()
    while True:
        try:
            await self._watch()
        except ClusterError as error:
            self._revision = str(self._highest + 1)
            await self._pause(error)


def _heard_for_ever(honest: Any) -> Any:
    def stream(self: Session, path: str, *, params: Mapping[str, str], **_: Any) -> Any:
        return honest(self, path, params=params, inactivity=1e9)

    return stream


def _drops_nothing(self: Store[Any], seen: Any, resource_version: str, *, within: str = "") -> None:
    """Keep objects that a list does not have."""


def _ignored(self: Any, *_: Any, **__: Any) -> None:
    """Not done."""


MUTANTS: Mapping[str, Mutant] = {
    "a leader counts its time from the answer, and for longer than others wait": _instead(
        LeaderElector, "_claim", _counts_from_the_answer()
    ),
    "a lease is taken whoever holds it": _instead(LeaderElector, "_is_free", lambda _self, _lease: True),
    "a lease that somebody deleted is free": _instead(LeaderElector, "_was_held_lately", lambda _self: False),
    "a leader does not look at its lease again": _instead(LeaderElector, "_keep", _keeps_it_unseen),
    "a lease is not handed back": _instead(LeaderElector, "_release", _nothing),
    "who is stuck keeps its lease": _instead(LeaderElector, "_is_stuck", lambda _self: False),
    "writes are not fenced": _instead(Session, "_permitted", lambda _self, _method: WRITE_SECONDS),
    "a leader begins with what it knows": _instead(Watches, "catch_up", _nothing),
    "after 410 nothing is listed": _instead(Reflector, "run", _watches_on_after_410),
    "what a list does not have stays": _instead(Store, "observe_list", _drops_nothing),
    "late news bring back what was deleted": _instead(Store, "_add_tombstone", _ignored),
    "a silent watch is waited for": _instead(Session, "stream", _heard_for_ever(Session.stream)),
    "jobs that kopf does not tell of are not looked for": _instead(JobInformer, "_sweep_forever", _nothing),
    "kopf is not started again": _instead(JobInformer, "_watch_forever", _nothing),
    "a pod whose making was not answered was not made": _instead(AssumedPods, "await_seen", AssumedPods.forget),
    "pods of a job that is gone stay its own": _instead(Ledger, "job_changed", _ignored),
    "stores that are old are trusted": _instead(Watches, "fresh", lambda _self: True),
}
"""The mutants, by the broken rule in words."""

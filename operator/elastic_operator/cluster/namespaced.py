"""Keeps one kind's objects of some namespaces in one store: a reflector for each namespace, used like a single one.

For a role that may read the kind in these namespaces only: a list of the whole cluster would be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Generic

from elastic_operator.cluster.reflector import Reflector, Stats
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store, T


class Namespaced(Generic[T]):
    """The reflectors of `namespaces`, of which there is at least one. For `is_gone` see `Reflector`."""

    def __init__(
        self,
        session: Session,
        path: str,
        type_: type[T],
        *,
        namespaces: Sequence[str],
        params: Mapping[str, str] | None = None,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.store: Store[T] = Store()
        self._reflectors = [
            Reflector(session, path, type_, namespace=namespace, store=self.store, params=params, is_gone=is_gone)
            for namespace in dict.fromkeys(namespaces)
        ]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for reflector in self._reflectors for path in reflector.paths)

    @property
    def stats(self) -> Stats:
        """The sums of their counters."""
        counters = [asdict(reflector.stats) for reflector in self._reflectors]
        return Stats(**{name: sum(counted[name] for counted in counters) for name in counters[0]})

    def age(self) -> float:
        """Seconds since the last news of the namespace with the oldest news."""
        return max(reflector.age() for reflector in self._reflectors)

    def revisions(self) -> dict[str, int]:
        """As of one reflector."""
        return {path: revision for reflector in self._reflectors for path, revision in reflector.revisions().items()}

    def newest(self) -> int:
        """The highest known resourceVersion."""
        return max(reflector.newest() for reflector in self._reflectors)

    def has_seen(self, revisions: Mapping[str, int]) -> bool:
        """As of one reflector."""
        return all(reflector.has_seen(revisions) for reflector in self._reflectors)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def catch_up(self, since: float | None = None) -> None:
        """Make the store at least as new as `since` (monotonic), by default this call; tries until the server
        answers.
        """
        await asyncio.gather(*(reflector.catch_up(since) for reflector in self._reflectors))

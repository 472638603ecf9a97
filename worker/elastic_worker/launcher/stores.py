"""The stores of the training processes' rendezvous: one per generation, and a spare one started ahead for the next."""

from __future__ import annotations

import signal
from typing import Callable

from elastic_worker.coordinator.part import Part
from elastic_worker.processes.starter import Starter, Store


class Stores:
    """The stores of a pod that hosts them: the master's pod, or the first pod of a group without the master (125).

    `changed` is called when the spare store is used, or has ended.
    """

    def __init__(self, starter: Starter, changed: Callable[[], None]) -> None:
        self._starter, self._changed = starter, changed
        self._used: list[Store] = []
        self._spare: Store | None = None

    async def ensure(self) -> int:
        """The port of a store that no generation has used. Raises RuntimeError if none starts."""
        if self._spare is None or self._spare.process.exited.done():
            self._spare = await self._starter.start_store()
            self._spare.process.exited.add_done_callback(lambda _: self._changed())
        return self._spare.port

    def use(self, part: Part) -> bool:
        """Note the store of a generation; returns whether it takes the spare one.

        The previous store is kept, because processes of the previous generation may not have ended yet.
        """
        if part.place != 0 or self._spare is None or self._spare.port != part.store_port:
            return False
        if len(self._used) == 2:
            self._used.pop(0).process.signal(signal.SIGKILL)
        self._used.append(self._spare)
        self._spare = None
        self._changed()
        return True

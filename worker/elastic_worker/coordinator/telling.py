"""What goes out to the members: each message is encoded once, and sent in turns, so that beats go out in between.

To tell a thousand members of an earlier release of a group, each the whole of it, takes seconds. Who hears nothing
for `wire.SILENCE_SECONDS` gives the coordinator up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from elastic_worker import wire
from elastic_worker.coordinator.model import Generation
from elastic_worker.coordinator.part import part_of
from elastic_worker.coordinator.state import CoordinatorState
from elastic_worker.protocol.codec import Message
from elastic_worker.protocol.orders import Group

Tell = Callable[[Iterable[str], Message], None]
"""Put a message on its way to those of these members that are connected."""

TURN_BYTES = 1 << 18
"""So much is sent before others may run: some milliseconds."""
SEND_BYTES = 1 << 10
"""As long as copying that many takes to send a message, however short it is."""
BEAT = wire.encode({"beat": 1})


class Telling:
    """`lines` are those to the members that are connected, by uid."""

    def __init__(self) -> None:
        self.lines: dict[str, wire.Line] = {}
        self._queue: deque[tuple[wire.Line, bytes]] = deque()
        self._filled = asyncio.Event()

    def tell(self, uids: Iterable[str], message: Message) -> None:
        """Put a message on its way to those of the members that are connected."""
        line = wire.encode(message.to_json())
        self._queue.extend((self.lines[uid], line) for uid in uids if uid in self.lines)
        self._filled.set()

    def beat(self) -> None:
        """Tell all at once that the coordinator is there."""
        for line in self.lines.values():
            line.send_line(BEAT)

    async def run(self) -> None:
        """Send what there is to tell, in its order, until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._queue:
                self._send_turn()
                await asyncio.sleep(0)

    def _send_turn(self) -> None:
        left = TURN_BYTES
        while self._queue and left > 0:
            line, message = self._queue.popleft()
            line.send_line(message)
            left -= len(message) + SEND_BYTES


def tell_group(
    state: CoordinatorState, tell: Tell, group: Generation, uids: Iterable[str], word: Callable[[Group], Message]
) -> None:
    """Tell of a group: each member its own part of it, those of earlier releases the whole (113)."""
    members = [state.members[uid] for uid in uids]
    older = [member.pod.uid for member in members if not member.takes_parts]
    if older:
        tell(older, word(group.to_message()))
    for member in members:
        if member.takes_parts:
            tell([member.pod.uid], word(part_of(group, member.pod.uid).to_message()))

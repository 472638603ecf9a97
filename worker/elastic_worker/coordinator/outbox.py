"""Sends messages to the members: each is encoded once, and they are sent in batches, with heartbeats in between.

Sending a whole group to each of a thousand members of an earlier release takes seconds. A launcher that hears nothing
for `wire.SILENCE_SECONDS` gives up the coordinator (114).
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
from elastic_worker.protocol.orders import GenerationRecord

Send = Callable[[Iterable[str], Message], None]
"""Queues a message to the connected ones of these members, by uid."""

BATCH_BYTES = 1 << 18
"""How many bytes are sent before other tasks run: some milliseconds."""
SEND_BYTES = 1 << 10
"""The overhead of a message: sending one, however short, takes as long as copying that many bytes."""
BEAT = wire.encode({"beat": 1})


class Outbox:
    """The outbox of one coordinator. `lines` are the connections to the members, by uid."""

    def __init__(self) -> None:
        self.lines: dict[str, wire.Line] = {}
        self._queue: deque[tuple[wire.Line, bytes]] = deque()
        self._filled = asyncio.Event()

    def send(self, uids: Iterable[str], message: Message) -> None:
        """Queue a message to the connected ones of the members."""
        line = wire.encode(message.to_json())
        self._queue.extend((self.lines[uid], line) for uid in uids if uid in self.lines)
        self._filled.set()

    def beat(self) -> None:
        """Send a heartbeat to all members, ahead of the queue."""
        for line in self.lines.values():
            line.send_line(BEAT)

    async def run(self) -> None:
        """Send what is queued, in its order, until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._queue:
                self._send_batch()
                await asyncio.sleep(0)

    def _send_batch(self) -> None:
        bytes_left = BATCH_BYTES
        while self._queue and bytes_left > 0:
            line, message = self._queue.popleft()
            line.send_line(message)
            bytes_left -= len(message) + SEND_BYTES


def send_group(
    state: CoordinatorState,
    send: Send,
    group: Generation,
    uids: Iterable[str],
    message_of: Callable[[GenerationRecord], Message],
) -> None:
    """Send a group: to each member its own part, to members of earlier releases the whole (113).

    `message_of` makes the message from the record of the part or of the whole.
    """
    members = [state.members[uid] for uid in uids]
    older = [member.pod.uid for member in members if not member.understands_parts]
    if older:
        send(older, message_of(group.to_message()))
    for member in members:
        if member.understands_parts:
            send([member.pod.uid], message_of(part_of(group, member.pod.uid).to_message()))

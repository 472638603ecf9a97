"""The launcher's end of the control channel to one warm parent (see orders.py)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import orders

Message = dict[str, Any]


class Channel:
    """Asks for processes and passes on what else the parent says, until `close`."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[Message | None]] = {}
        self._asked = 0
        self._mine, self.theirs = orders.pair()
        self._mine.setblocking(False)
        self._loop.add_reader(self._mine, self._receive)

    async def fork(self, ticket: Path, *, output: tuple[int, int], seconds: float) -> Message | None:
        """Ask for a process; the parent's answer, None if the parent has ended. Raises OSError if it hangs."""
        self._asked += 1
        asked = self._asked
        answer = self._pending[asked] = self._loop.create_future()
        try:
            socket.send_fds(self._mine, [orders.encode({"id": asked, "ticket": str(ticket)})], output)
            await asyncio.wait({answer}, timeout=seconds)
            if not answer.done():
                raise OSError(f"no answer within {seconds:g} seconds")
            message: Message | None = answer.result()
            return message
        finally:
            self._pending.pop(asked, None)

    def close(self) -> None:
        """Read what has arrived and close: a forked process that has not reported yet sees that and ends."""
        self._loop.remove_reader(self._mine)
        self._mine.shutdown(socket.SHUT_RD)
        self._receive()
        self._mine.close()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_result(None)

    def _receive(self) -> None:
        while True:
            try:
                data = self._mine.recv(orders.MESSAGE_BYTES)
            except (BlockingIOError, ConnectionError):
                return
            if not data:
                # All copies of the other end are closed; the process's own end says the rest.
                self._loop.remove_reader(self._mine)
                return
            self._dispatch(json.loads(data))

    def _dispatch(self, message: Message) -> None:
        if "id" not in message:
            self._on_message(message)
            return
        answer = self._pending.get(message["id"])
        if answer is not None and not answer.done():
            answer.set_result(message)

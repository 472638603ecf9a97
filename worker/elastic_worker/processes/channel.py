"""The launcher's end of the control channel to one warm parent (see orders.py)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from elastic_worker.protocol.codec import Message
from elastic_worker.protocol.warm_parent import Fork, Forked, NotForked

from . import orders

Answer = Union[Forked, NotForked]


class Channel:
    """Asks for processes and hands what else the parent says to its `handlers`, until `close`."""

    def __init__(self, handlers: Mapping[type[Message], Callable[[Any], None]]) -> None:
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            Forked: self._answer,
            NotForked: self._answer,
            **handlers,
        }
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[Answer | None]] = {}
        self._asked = 0
        self._mine, self.theirs = orders.pair()
        self._mine.setblocking(False)
        self._loop.add_reader(self._mine, self._receive)

    async def fork(self, ticket: Path, *, output: tuple[int, int], seconds: float) -> Answer | None:
        """Ask for a process; the parent's answer, None if the parent has ended. Raises OSError if it hangs."""
        self._asked += 1
        asked = self._asked
        answer = self._pending[asked] = self._loop.create_future()
        try:
            socket.send_fds(self._mine, [orders.encode(Fork(str(ticket), asked))], output)
            await asyncio.wait({answer}, timeout=seconds)
            if not answer.done():
                raise OSError(f"no answer within {seconds:g} seconds")
            result: Answer | None = answer.result()
            return result
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
            packet = json.loads(data)
            for kind, handle in self._handlers.items():
                if kind.key in packet:
                    handle(kind.from_json(packet))

    def _answer(self, said: Answer) -> None:
        answer = self._pending.get(said.id)
        if answer is not None and not answer.done():
            answer.set_result(said)

"""The launcher's end of the control channel to one warm parent (see control.py)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from elastic_worker.protocol.codec import Message
from elastic_worker.protocol.warm_parent import Fork, Forked, NotForked

from . import control

Answer = Union[Forked, NotForked]


class Channel:
    """Asks the parent for processes, and hands its other messages to `handlers` by their type, until `close`."""

    def __init__(self, handlers: Mapping[type[Message], Callable[[Any], None]]) -> None:
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            Forked: self._answer,
            NotForked: self._answer,
            **handlers,
        }
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[Answer | None]] = {}
        self._requests = 0
        self._own_end, self.parent_end = control.pair()
        self._own_end.setblocking(False)
        self._loop.add_reader(self._own_end, self._receive)

    async def fork(self, ticket: Path, *, output: tuple[int, int], seconds: float) -> Answer | None:
        """Ask for a process that takes this ticket, with `output` as its stdout and stderr.

        Returns the parent's answer, None if the parent has ended. Raises OSError without an answer within `seconds`.
        """
        self._requests += 1
        number = self._requests
        answer = self._pending[number] = self._loop.create_future()
        try:
            socket.send_fds(self._own_end, [control.encode(Fork(str(ticket), number))], output)
            await asyncio.wait({answer}, timeout=seconds)
            if not answer.done():
                raise OSError(f"no answer within {seconds:g} seconds")
            result: Answer | None = answer.result()
            return result
        finally:
            self._pending.pop(number, None)

    def close(self) -> None:
        """Read what has arrived and close. A forked process that has not reported yet sees that and ends."""
        self._loop.remove_reader(self._own_end)
        self._own_end.shutdown(socket.SHUT_RD)
        self._receive()
        self._own_end.close()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_result(None)

    def _receive(self) -> None:
        while True:
            try:
                data = self._own_end.recv(control.MESSAGE_BYTES)
            except (BlockingIOError, ConnectionError):
                return
            if not data:
                # All copies of the other end are closed. The exit code of the parent's process gives the reason.
                self._loop.remove_reader(self._own_end)
                return
            packet = json.loads(data)
            for kind, handle in self._handlers.items():
                if kind.key in packet:
                    handle(kind.from_json(packet))

    def _answer(self, answer: Answer) -> None:
        pending = self._pending.get(answer.id)
        if pending is not None and not pending.done():
            pending.set_result(answer)

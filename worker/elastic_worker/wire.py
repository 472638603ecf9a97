"""The connection of a member to the coordinator: one JSON object per line over TCP, after both have shown the token.

The token itself never travels: each side sends a number used once, and proves with an HMAC over both that it knows the
job's secret. The proof covers job and incarnation, so a pod of an older incarnation is refused. Only membership is
protected; traffic between training processes is not authenticated.

The two may be of different releases (`contract.UNDERSTOOD`): an unknown key is ignored, a missing one has a default,
and a message that cannot be understood is logged without ending the connection (103). Greetings say whether a side
knows parts of groups (PARTS, 113).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Callable
from typing import Any

from elastic_worker import contract

Message = dict[str, Any]

LINE_BYTES = 1 << 20
"""Most bytes of a line: a generation of 4,096 pods, exchanged with members of earlier releases, is about 700 KB."""
PARTS = "parts"
"""Key of a greeting: this side understands parts of groups."""
HANDSHAKE_SECONDS = 5.0
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 5.0
"""A peer that is silent for this long counts as lost. A peer sends every second, and its logging never blocks (`logs`).
"""
IN_PLACE_SILENCE_SECONDS = 3.0
"""The same time for a pod that changes groups in place (126). The others stop while they wait for it; a pod removed by
mistake costs them two changes of a tenth of a second."""


class RefusedError(Exception):
    """One side refuses the other, which is not of this job; the message says why."""


UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""Errors raised on reading a message that cannot be understood."""


class EndedError(ConnectionError):
    """The other side closed the connection: its process has ended."""


class SilentError(ConnectionError):
    """The peer was silent for too long."""


def encode(message: Message) -> bytes:
    """Encode a message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Line:
    """A connection that carries messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        _notice_the_dead(writer.get_extra_info("socket"))

    @property
    def local_address(self) -> str:
        """The address of this end."""
        return str(self._writer.get_extra_info("sockname")[0])

    def send(self, message: Message) -> None:
        """Queue a message; `receive` notices a broken connection."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """Queue a message that is encoded already, because it is sent to many members."""
        if not self._writer.is_closing():
            self._writer.write(line)

    async def receive(self, *, seconds: float = SILENCE_SECONDS) -> Message:
        """The next message. Raises ConnectionError after the end, after silence, or for a malformed line."""
        try:
            line = await asyncio.wait_for(self._reader.readline(), seconds)
        except asyncio.TimeoutError as error:
            raise SilentError(f"nothing was received for {seconds:.0f} s") from error
        except ValueError as error:
            raise ConnectionError("a message is too long") from error
        if not line.endswith(b"\n"):
            raise EndedError("the connection ended")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ConnectionError("a line is no JSON") from error
        if not isinstance(message, dict):
            raise ConnectionError("a message is no object")
        return message

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Close the connection at once, without sending what is queued."""
        self._writer.transport.abort()


async def dial(host: str, port: int, *, token: str, say: Callable[[Message], Message]) -> tuple[Line, Message]:
    """Connect to the coordinator; returns the connection and the coordinator's welcome.

    `say` returns the hello that answers the coordinator's greeting. Raises OSError, ConnectionError, RefusedError.
    """
    opening = asyncio.open_connection(host, port, limit=LINE_BYTES)
    line = Line(*await asyncio.wait_for(opening, HANDSHAKE_SECONDS))
    try:
        challenge = await line.receive(seconds=HANDSHAKE_SECONDS)
        theirs, ours = _once(challenge), secrets.token_hex(16)
        _check_contract(challenge)
        hello = say(challenge)
        line.send({**hello, "once": ours, "proof": _proof(token, "member", theirs, ours, hello)})
        welcome = await line.receive(seconds=HANDSHAKE_SECONDS)
        _check_welcome(welcome, _proof(token, "coordinator", theirs, ours, hello))
    except BaseException:
        line.abort()
        raise
    return line, welcome


async def receive_hello(line: Line, *, token: str, job_uid: str, incarnation: int) -> tuple[Message, str]:
    """Receive a member's hello; returns it, and the proof for the welcome. Raises ConnectionError, RefusedError."""
    ours = secrets.token_hex(16)
    line.send({"once": ours, "contract": contract.VERSION, PARTS: True})
    hello = await line.receive(seconds=HANDSHAKE_SECONDS)
    _check(hello, token=token, job_uid=job_uid, incarnation=incarnation, once=ours)
    return hello, _proof(token, "coordinator", ours, _once(hello), hello)


def _check(hello: Message, *, token: str, job_uid: str, incarnation: int, once: str) -> None:
    if not _equal(hello.get("proof"), _proof(token, "member", once, _once(hello), hello)):
        raise RefusedError("the token is not this job's")
    _check_contract(hello)
    if hello.get("job") != job_uid or hello.get("incarnation") != incarnation:
        raise RefusedError(f"incarnation {hello.get('incarnation')} is over, this is {incarnation}")


def _check_contract(message: Message) -> None:
    version = str(message.get("contract", "1"))
    if version not in contract.UNDERSTOOD:
        understood = ", ".join(contract.UNDERSTOOD)
        raise RefusedError(f"it speaks version {version[:20]} of the contract, understood are {understood}")


def _check_welcome(welcome: Message, proof: str) -> None:
    if "refused" in welcome:
        raise RefusedError(str(welcome["refused"]))
    if not _equal(welcome.get("proof"), proof):
        raise RefusedError("the process that answers at the master's address does not know the job's token")


def _proof(token: str, side: str, theirs: str, ours: str, hello: Message) -> str:
    text = "\n".join((side, theirs, ours, str(hello.get("job")), str(hello.get("incarnation")), str(hello.get("uid"))))
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


def _equal(received: object, expected: str) -> bool:
    return isinstance(received, str) and hmac.compare_digest(received, expected)


def _once(message: Message) -> str:
    once = message.get("once")
    if not isinstance(once, str) or len(once) != 32:
        raise ConnectionError("the greeting is not one of ours")
    return once


def _notice_the_dead(connection: socket.socket) -> None:
    """Set TCP keep-alive: a machine that is off answers nothing, and a flow to a removed endpoint is not reset."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    user_timeout = getattr(socket, "TCP_USER_TIMEOUT", None)
    if user_timeout is not None:
        connection.setsockopt(socket.IPPROTO_TCP, user_timeout, int(SILENCE_SECONDS * 1000))

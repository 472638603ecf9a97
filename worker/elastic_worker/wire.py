"""What members and coordinator say to each other: one JSON object per line over TCP, after both have shown the token.

The token itself never travels: each side sends a number used once, and proves with an HMAC over both that it knows the
job's secret. Job and incarnation are part of what is proven, so a pod of an older incarnation is refused. Membership is
what is protected; what training processes say among themselves is theirs.

The two may be of different releases (`contract.UNDERSTOOD`): a key that is not known is passed over, one that lacks has
a default, and a message that makes no sense is logged, and costs nobody the connection (103). Both say in their
greetings whether they know what a part of a group is (PARTS, 113).
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
"""A generation of 4,096 pods, which members of earlier releases say and are told, is about 700 KB."""
PARTS = "parts"
"""In a greeting: a group may be told as one's part of it."""
HANDSHAKE_SECONDS = 5.0
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 5.0
"""A peer that has not been heard of for so long is taken for gone: it says something every second, and nothing that may
stall is written on the way (`logs`)."""
IN_PLACE_SILENCE_SECONDS = 3.0
"""The same for a pod that changes groups in place (126). The others stand still while it is waited for; if it was
missed by mistake, that costs them two changes of a tenth of a second."""


class RefusedError(Exception):
    """The other side does not belong to this job, or says so of us; the message says why."""


UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)
"""What reading a message raises that makes no sense here."""


class EndedError(ConnectionError):
    """The other side closed the connection: its process has ended."""


class SilentError(ConnectionError):
    """Nothing was heard for longer than a peer that is well is silent."""


def encode(message: Message) -> bytes:
    """As a line."""
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
        """Put a message on its way; `receive` notices a broken connection."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """The same for one that is encoded already, since it goes to many."""
        if not self._writer.is_closing():
            self._writer.write(line)

    async def receive(self, *, seconds: float = SILENCE_SECONDS) -> Message:
        """The next message. Raises ConnectionError at the end, after silence, and for what is no message."""
        try:
            line = await asyncio.wait_for(self._reader.readline(), seconds)
        except asyncio.TimeoutError as error:
            raise SilentError(f"nothing was heard for {seconds:.0f} s") from error
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
        """End it."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """End it without a word."""
        self._writer.transport.abort()


async def dial(host: str, port: int, *, token: str, say: Callable[[Message], Message]) -> tuple[Line, Message]:
    """A line to the coordinator, and its welcome; `say` gives the hello to its greeting.

    Raises OSError, ConnectionError, RefusedError.
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
    """A member's hello and the proof to welcome it with. Raises ConnectionError; RefusedError."""
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
        raise RefusedError("whoever answers at the master's address does not know the job's token")


def _proof(token: str, who: str, theirs: str, ours: str, hello: Message) -> str:
    said = "\n".join((who, theirs, ours, str(hello.get("job")), str(hello.get("incarnation")), str(hello.get("uid"))))
    return hmac.new(token.encode(), said.encode(), hashlib.sha256).hexdigest()


def _equal(one: object, other: str) -> bool:
    return isinstance(one, str) and hmac.compare_digest(one, other)


def _once(message: Message) -> str:
    once = message.get("once")
    if not isinstance(once, str) or len(once) != 32:
        raise ConnectionError("the greeting is not one of ours")
    return once


def _notice_the_dead(connection: socket.socket) -> None:
    """A machine that is off answers nothing, and a flow to an endpoint that is gone is not reset."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    user_timeout = getattr(socket, "TCP_USER_TIMEOUT", None)
    if user_timeout is not None:
        connection.setsockopt(socket.IPPROTO_TCP, user_timeout, int(SILENCE_SECONDS * 1000))

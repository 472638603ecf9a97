"""The line to the coordinator: what a launcher tells reaches it, at whatever moment it is told."""

import asyncio
import contextlib
import dataclasses

from elastic_worker import settings, wire
from elastic_worker.launcher.coordinator_connection import CoordinatorConnection
from elastic_worker.protocol.reports import Warm
from tests.worker.job.local import free_port

MOST_TURNS = 400
"""Of the event loop; long before, the line is up."""
SETTINGS = settings.Settings(
    **{field.name: "" for field in dataclasses.fields(settings.Settings)}
    | {"job_uid": "job", "incarnation": 3, "pod_uid": "u1", "token": "secret", "host": "127.0.0.1"}
    | {"is_master": False, "processes": 1, "index": 0}
)


class Coordinator:
    """Lets everybody in, and remembers what it was told last. It says `says` at first."""

    def __init__(self, says=()) -> None:
        self.state, self.says = {}, says

    async def welcome(self, reader, writer):
        line = wire.Line(reader, writer)
        try:
            hello, proof = await wire.receive_hello(line, token="secret", job_uid="job", incarnation=3)
            self.state.update(hello)
            line.send({"proof": proof, "epoch": 1})
            for message in self.says:
                line.send(message)
            while True:
                self.state.update(await line.receive())
        except ConnectionError:
            line.abort()


@contextlib.asynccontextmanager
async def joining(says=(), heard=lambda _message: asyncio.sleep(0)):
    """A launcher that has begun to connect, and the coordinator that it finds."""
    coordinator, port = Coordinator(says), free_port()
    server = await asyncio.start_server(coordinator.welcome, "127.0.0.1", port)
    connection = CoordinatorConnection(dataclasses.replace(SETTINGS, port=port), heard)
    connection.report(Warm(False))
    running = asyncio.ensure_future(connection.run())
    try:
        yield connection, coordinator
    finally:
        running.cancel()
        await asyncio.wait({running})
        server.close()
        await server.wait_closed()
        await asyncio.sleep(1)


async def told_after(turns: int) -> tuple[bool, bool]:
    """Whether the line was up when the launcher told that it is warm, and whether the coordinator has heard of it."""
    async with joining() as (connection, coordinator):
        for _ in range(turns):
            await asyncio.sleep(0)
        was_connected = connection.connected
        connection.report(Warm(True))
        await asyncio.sleep(2)
    return was_connected, coordinator.state["warm"]


async def test_a_pod_that_gets_warm_while_it_connects_is_known_to_be_warm():
    was_connected = False
    for turns in range(MOST_TURNS):
        was_connected, heard = await told_after(turns)
        assert heard, f"told after {turns} turns of the loop"
        if was_connected:
            break
    assert was_connected, "the line never came up while the launcher waited to tell"


async def test_a_coordinator_that_says_nothing_is_given_up_after_the_silence_and_not_before():
    heard = []
    async with joining() as (connection, _):
        connection.on_coordinator = heard.append
        await asyncio.sleep(wire.SILENCE_SECONDS - 1)
        assert heard == [1]
        await asyncio.sleep(2)
        assert heard[:2] == [1, None]


async def test_a_word_that_cannot_be_read_ends_neither_the_launcher_nor_the_line():
    """Of a coordinator of another release, as of a script that spoils what the launcher knows."""
    heard = []

    async def hear(message):
        heard.append(int(message["number"]))

    async with joining([{"word": 1}, {"number": "?"}, {"number": None}, {"number": 5}], hear) as (connection, _):
        await asyncio.sleep(2)
        assert (heard, connection.connected) == ([5], True)

"""What the launcher and its warm parent say to each other, and the launcher and the torchrun of a command."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from elastic_worker.processes import control, standin
from elastic_worker.processes.channel import Channel
from elastic_worker.protocol import warm_parent


@pytest.fixture
async def channel():
    """The launcher's end, and what else than answers the parent has said."""
    heard = []
    channel = Channel(dict.fromkeys(warm_parent.FROM_PARENT[:4], heard.append))
    channel.parent_end.setblocking(True)
    channel.parent_end.settimeout(10)
    yield channel, heard
    channel.close()
    channel.parent_end.close()


async def ask(channel):
    """For a process; the answer, and the request as the parent reads it."""
    asking = asyncio.ensure_future(channel.fork(Path("/private/1.ticket"), output=(1, 2), seconds=10))
    await asyncio.sleep(0)
    data, descriptors, _, _ = control.socket.recv_fds(channel.parent_end, control.MESSAGE_BYTES, 2)
    for descriptor in descriptors:
        os.close(descriptor)
    return asking, json.loads(data)


def say(channel, **message):
    channel.parent_end.send(json.dumps(message).encode())


async def test_each_request_for_a_process_has_a_number_and_names_its_ticket(channel):
    channel, heard = channel
    first, request = await ask(channel)
    assert request == {"id": 1, "ticket": "/private/1.ticket"}
    second, request = await ask(channel)
    assert request == {"id": 2, "ticket": "/private/1.ticket"}
    say(channel, id=2, error="no memory")
    say(channel, id=1, pid=77)
    assert [await first, await second] == [warm_parent.Forked(77, 1), warm_parent.NotForked("no memory", 2)]
    assert heard == []


async def test_what_the_parent_says_by_itself_is_no_answer(channel):
    channel, heard = channel
    asking, _ = await ask(channel)
    say(channel, importing="torch")
    say(channel, failed="wave", why="ImportError: no wave")
    say(channel, unfit="threads", why="it has a thread")
    say(channel, ready=True)
    say(channel, id=1, pid=77)
    await asking
    assert heard == [
        warm_parent.Importing("torch"),
        warm_parent.NotImported("wave", "ImportError: no wave"),
        warm_parent.Unfit("threads", "it has a thread"),
        warm_parent.Imported(),
    ]


async def test_a_parent_that_is_gone_gives_no_process():
    channel = Channel({})
    asking, _ = await ask(channel)
    channel.parent_end.close()
    channel.close()
    assert await asking is None


async def test_a_call_of_torchrun_is_a_line_and_its_exit_code_is_another(tmp_path):
    calls = []

    async def on_run(request):
        calls.append((list(request.argv), request.directory, request.environ))
        return 7

    serving = asyncio.ensure_future(standin.serve(tmp_path / "socket", on_run))
    await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
    call = {"argv": ["train.py", "--lr", "1"], "directory": "/home/user", "environ": {"HOME": "/root"}}
    writer.write(json.dumps(call).encode() + b"\n")
    assert json.loads(await reader.readline()) == {"code": 7}
    assert calls == [(["train.py", "--lr", "1"], "/home/user", {"HOME": "/root"})]
    writer.close()
    serving.cancel()
    await asyncio.wait({serving})

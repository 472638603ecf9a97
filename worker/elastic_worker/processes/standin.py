"""The `torchrun` that a user's own command finds first on PATH: hands its command line over to the launcher.

`bin/torchrun` (a shell script) runs `standin_client.py`, which connects to the launcher's Unix socket, sends one line
of JSON, waits for one with the exit code, and exits with it. Here is the launcher's side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("bin")
"""To be put first on PATH."""
ENV_SOCKET = "ELASTIC_SOCKET"
ENV_PYTHON = "ELASTIC_PYTHON"
"""The interpreter that the stand-in runs in; without it python3 or python on PATH."""
LINE_BYTES = 16 << 20


class Request(NamedTuple):
    """A call of torchrun: its arguments, and where and in which environment it was called."""

    argv: tuple[str, ...]
    directory: str
    environ: dict[str, str]


OnRun = Callable[[Request], Awaitable[int]]


async def serve(path: Path, on_run: OnRun) -> None:
    """Answer calls at this socket until cancelled. `on_run` gives the exit code; cancelled if the caller goes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, ValueError):
                await _answer(reader, writer, on_run)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, path, limit=LINE_BYTES)
    path.chmod(0o600)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_run: OnRun) -> None:
    fields = json.loads(await reader.readline())
    request = Request(tuple(fields["argv"]), fields["directory"], fields["environ"])
    running = asyncio.ensure_future(on_run(request))
    gone = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            writer.write(json.dumps({"code": running.result()}).encode() + b"\n")
            await writer.drain()
    finally:
        running.cancel()
        gone.cancel()

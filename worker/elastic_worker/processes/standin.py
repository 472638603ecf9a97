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

from elastic_worker.protocol.standin import Ended, Run

FOLDER = Path(__file__).with_name("bin")
"""To be put first on PATH."""
ENV_SOCKET = "ELASTIC_SOCKET"
ENV_PYTHON = "ELASTIC_PYTHON"
"""The interpreter that the stand-in runs in; without it python3 or python on PATH."""
LINE_BYTES = 16 << 20


OnRun = Callable[[Run], Awaitable[int]]


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
    request = Run.from_json(json.loads(await reader.readline()))
    running = asyncio.ensure_future(on_run(request))
    gone = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            writer.write(json.dumps(Ended(running.result()).to_json()).encode() + b"\n")
            await writer.drain()
    finally:
        running.cancel()
        gone.cancel()

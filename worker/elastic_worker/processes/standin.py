"""The `torchrun` that a user's own command calls: hands its command line over to the launcher.

`standin_client.py`, in the command's processes, connects to the launcher's Unix socket, sends one line of JSON, waits
for one with the exit code, and exits with it. Here is the launcher's side, and how the client is found: as `torchrun`
first on PATH, and by every other torchrun as torch's plug-in for the rendezvous backend of the pod (`open_door`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from elastic_worker import contract
from elastic_worker.protocol.standin import Ended, Python, Run

FOLDER = Path(__file__).with_name("bin")
"""To be put first on PATH."""
ENV_SOCKET = "ELASTIC_SOCKET"
ENV_PYTHON = "ELASTIC_PYTHON"
"""The interpreter that the stand-in runs in; without it python3 or python on PATH."""
LINE_BYTES = 16 << 20
_CLIENT = Path(__file__).with_name("standin_client.py")
_MODULE = "elastic_pytorch_torchrun"
_PLUGIN = {
    "METADATA": f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1\n",
    "entry_points.txt": f"[torchrun.handlers]\n{contract.ELASTIC_BACKEND} = {_MODULE}:handler\n",
}
"""What Python's importlib.metadata reads of a package that is installed."""


def is_ours(python: Python) -> bool:
    """Whether it is the interpreter that the launcher runs in."""
    return python.prefix == sys.prefix and Path(python.executable).resolve() == Path(sys.executable).resolve()


OnRun = Callable[[Run], Awaitable[int]]


def open_door(folder: Path) -> None:
    """Put the client into an empty folder, as a package whose plug-in torch finds where that is in PYTHONPATH."""
    shutil.copyfile(_CLIENT, folder / f"{_MODULE}.py")
    described = folder / f"{_MODULE}-1.dist-info"
    described.mkdir()
    for name, text in _PLUGIN.items():
        (described / name).write_text(text)


def without(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without that folder in PYTHONPATH: training processes have nothing to do with it."""
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(folder)]
    return (
        {**environ, "PYTHONPATH": os.pathsep.join(paths)}
        if any(paths)
        else {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    )


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

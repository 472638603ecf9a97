"""The launcher's side of the stand-in for torchrun, which a user's own command calls.

The client (`standin_client.py`) runs in the command's processes. It connects to the launcher's Unix socket, sends one
line of JSON with the command line, waits for one line with the exit code, and exits with that code. The client is found
in two ways: as `torchrun`, first on PATH; and by every other torchrun as torch's plug-in for the pod's rendezvous
backend (`install_plugin`).
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
"""The folder with the stand-in `torchrun`, to be put first on PATH."""
ENV_SOCKET = "ELASTIC_SOCKET"
ENV_PYTHON = "ELASTIC_PYTHON"
"""The interpreter that the stand-in runs in. Without this variable it is python3 or python on PATH."""
LINE_BYTES = 16 << 20
_CLIENT = Path(__file__).with_name("standin_client.py")
_MODULE = "elastic_pytorch_torchrun"
_PLUGIN = {
    "METADATA": f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1\n",
    "entry_points.txt": f"[torchrun.handlers]\n{contract.ELASTIC_BACKEND} = {_MODULE}:handler\n",
}
"""The files that Python's importlib.metadata reads of an installed package."""


def is_ours(python: Python) -> bool:
    """Whether this is the launcher's interpreter."""
    return python.prefix == sys.prefix and Path(python.executable).resolve() == Path(sys.executable).resolve()


OnRun = Callable[[Run], Awaitable[int]]


def install_plugin(folder: Path) -> None:
    """Put the client into an empty folder as a package. With the folder in PYTHONPATH, torch finds its plug-in."""
    shutil.copyfile(_CLIENT, folder / f"{_MODULE}.py")
    metadata = folder / f"{_MODULE}-1.dist-info"
    metadata.mkdir()
    for name, text in _PLUGIN.items():
        (metadata / name).write_text(text)


def without_plugin(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without that folder in PYTHONPATH, for training processes, which must not find the plug-in."""
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(folder)]
    return (
        {**environ, "PYTHONPATH": os.pathsep.join(paths)}
        if any(paths)
        else {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    )


async def serve(path: Path, on_run: OnRun) -> None:
    """Answer calls at the socket `path` until cancelled.

    `on_run` runs a request and returns its exit code. It is cancelled if the caller disconnects.
    """

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
    hung_up = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({running, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            writer.write(json.dumps(Ended(running.result()).to_json()).encode() + b"\n")
            await writer.drain()
    finally:
        running.cancel()
        hung_up.cancel()

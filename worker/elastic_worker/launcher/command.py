"""Runs a user's own command that calls torchrun, with our stand-in for torchrun first on PATH."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Callable

from elastic_worker import contract
from elastic_worker.launcher.ending import DONE, Ending
from elastic_worker.launcher.sockets import remove_folder_of, short_path
from elastic_worker.processes import standin, stray_training
from elastic_worker.processes.children import Children, Process
from elastic_worker.processes.torchrun import UsageError
from elastic_worker.protocol.standin import Run

log = logging.getLogger(__name__)

TakeProgram = Callable[[Run], Awaitable[None]]
USAGE_CODE = 2
"""torchrun's own exit code for a command line that it does not understand."""
LOOK_SECONDS = 1.0
"""Interval between checks of the processes that a command has started, until it has called torchrun."""
END_SECONDS = 5.0
"""Time for a command to end by itself after its torchrun has failed or was terminated."""


class Command:
    """One command, which may call torchrun once. `take` receives the program that torchrun is to run."""

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        scratch: Path,
        *,
        children: Children,
        take: TakeProgram,
    ) -> None:
        self.words, self._environ, self._socket = list(words), environ, short_path(scratch, "torchrun.sock")
        self._plugin = scratch / "plugin"
        self._children, self._take = children, take
        self._process: Process | None = None
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._called = False

    async def run(self) -> Ending:
        """Run the command to its own end; returns how the pod ends then."""
        server = asyncio.ensure_future(standin.serve(self._socket, self._on_run))
        looking = asyncio.ensure_future(self._look())
        try:
            await asyncio.sleep(0)
            try:
                self._process = self._children.adopt(self._start())
            except OSError as error:
                return Ending(contract.EXIT_DO_NOT_RETRY, f"the container's command cannot be run: {error}")
            ended = asyncio.ensure_future(self._process.wait())
            await asyncio.wait({server, ended, looking}, return_when=asyncio.FIRST_COMPLETED)
            if server.done():
                server.result()
            if looking.done() and not ended.done():
                await self._process.stop(END_SECONDS)
                return Ending(contract.EXIT_DO_NOT_RETRY, looking.result())
            code = await ended
        finally:
            looking.cancel()
            server.cancel()
            await asyncio.wait({server, looking})
            remove_folder_of(self._socket)
        return self._judge(code)

    async def _look(self) -> str:
        """Wait for a training process that the command starts by itself; returns the fault in words (140).

        The command continues if its processes cannot be examined; a missing call of torchrun is reported at its end.
        """
        loop = asyncio.get_running_loop()
        try:
            while not self._called:
                await asyncio.sleep(LOOK_SECONDS)
                fault = await loop.run_in_executor(None, stray_training.find_fault, self._environ)
                if fault and not self._called:
                    return fault
        except Exception:
            log.exception("the processes of the container's command cannot be examined")
        never: asyncio.Future[str] = loop.create_future()
        return await never

    def _judge(self, code: int) -> Ending:
        """How the pod ends after a command that ended by itself. Only an end with 0 after its torchrun is a success."""
        if code == 0 and self._called and self._answer.done():
            return DONE
        if code == 0:
            what = "ended while its torchrun was still wanted" if self._called else "ended without calling torchrun"
            message = f"the container's command {what}; in Elastic mode it must wait for `torchrun SCRIPT`"
            return Ending(contract.EXIT_DO_NOT_RETRY, message)
        when = "" if self._called else " before it called torchrun"
        return Ending(code if code > 0 else 128 - code, f"the container's command ended with {code}{when}")

    async def end(self, ending: Ending, at_most: Callable[[float], float]) -> Ending:
        """End the job: torchrun returns the code of `ending`, the command runs to its end, and its exit code counts.

        After a failure the command has `at_most(END_SECONDS)` before it is stopped.
        """
        if not self._answer.done():
            self._answer.set_result(ending.code)
        if self._process is None:
            return ending
        if ending.code == 0:
            code = await self._process.wait()
            return ending if code == 0 else Ending(code if code > 0 else 128 - code, f"the command ended with {code}")
        done, _ = await asyncio.wait({self._process.exited}, timeout=at_most(END_SECONDS))
        if not done:
            await self._process.stop(at_most(END_SECONDS))
        return ending

    def _start(self) -> int:
        """Start the command with the stand-in's folder first on PATH. Raises OSError if there is no such program."""
        self._plugin.mkdir()
        standin.install_plugin(self._plugin)
        path = f"{standin.FOLDER}{os.pathsep}{self._environ.get('PATH', os.defpath)}"
        modules = os.pathsep.join(filter(None, [str(self._plugin), self._environ.get("PYTHONPATH", "")]))
        environ = {key: value for key, value in self._environ.items() if key != contract.ENV_TOKEN}
        ours = {
            "PATH": path,
            "PYTHONPATH": modules,
            standin.ENV_SOCKET: str(self._socket),
            standin.ENV_PYTHON: sys.executable,
        }
        program = shutil.which(self.words[0], path=path)
        if program is None:
            raise FileNotFoundError(f"{self.words[0]}: there is no such program in the image")
        return self._children.spawn([program, *self.words[1:]], environ={**environ, **ours})

    async def _on_run(self, request: Run) -> int:
        if self._called:
            log.error("torchrun is called a second time: one is all that a command may call in Elastic mode")
            return 1
        try:
            await self._take(replace(request, environ=standin.without_plugin(self._plugin, request.environ)))
        except UsageError as error:
            log.warning("%s", error)
            return USAGE_CODE
        self._called = True
        return await asyncio.shield(self._answer)

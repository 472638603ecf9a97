"""A command runs to its own end, whatever is found out beside it."""

import asyncio
import os
import sys

from elastic_worker.launcher import command
from elastic_worker.launcher.command import Command
from elastic_worker.processes import stray_training
from elastic_worker.processes.children import Children

PAUSE = "import time; time.sleep(0.5)"


def test_a_command_goes_on_where_its_processes_cannot_be_looked_at(tmp_path, monkeypatch, caplog):
    """As where no more thread can be started, or /proc cannot be read."""
    monkeypatch.setattr(command, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(stray_training, "PROC", tmp_path / "no-such-folder")

    async def ending():
        children = Children()
        try:
            return await Command(
                [sys.executable, "-c", PAUSE], os.environ, tmp_path, children=children, take=_not_called
            ).run()
        finally:
            children.close()

    assert "ended without calling torchrun" in asyncio.run(ending()).message
    assert caplog.text.count("cannot be examined") == 1


async def _not_called(_request):
    raise AssertionError

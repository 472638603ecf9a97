"""A killed process counts as gone when all that it held is free."""

import socket
import sys

import pytest

from devcluster import processes
from devcluster.names import Layout
from tests.kit.wait import until

pytestmark = pytest.mark.processes

PART = "played/part"
# The kernel frees a process's memory before its sockets, and this much takes it several polls.
HOLDS_A_PORT = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
memory = b"x" * (1 << 30)
print(listener.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    layout = Layout("processes")
    yield layout
    processes.kill_all(lambda: pids(layout))


def pids(layout):
    return [process.pid for process in processes.find(layout)]


def test_a_port_can_be_taken_again_as_soon_as_the_process_that_had_it_is_gone(layout):
    processes.start(layout, PART, [sys.executable, "-c", HOLDS_A_PORT])
    log = layout.logs / "played-part.log"
    port = int(until("the process to listen", log.read_text, seconds=60.0))
    processes.kill_all(lambda: pids(layout))
    socket.create_server(("127.0.0.1", port)).close()

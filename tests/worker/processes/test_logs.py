"""The launcher's own log: who says something in it waits for nobody, also where the node's disk stalls."""

import logging
import os
import subprocess
import sys
import threading

import pytest

from elastic_worker import logs
from tests.worker.job.pod import WORKER

SAID = [f"line {number}" for number in range(3 * logs.MOST_LINES)]


@pytest.fixture
def stalled():
    """A pipe that is full, and whose reader does not read: its two ends."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"\n" * 65_536)
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield reader, writer
    os.close(reader)


def read_all(reader, into):
    """On a thread, until the other end is closed."""

    def read():
        while said := os.read(reader, 65_536):
            into.append(said)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def record(text):
    return logging.LogRecord("test", logging.INFO, "", 0, text, (), None)


def test_lines_that_cannot_be_written_are_waited_for_by_nobody_and_counted(stalled):
    reader, writer = stalled
    handler, heard = logs.Background(writer), []
    for line in SAID:
        handler.handle(record(line))
    thread = read_all(reader, heard)
    handler.flush()
    handler.handle(record("the end"))
    handler.flush()
    os.close(writer)
    thread.join()
    *lines, last = b"".join(heard).decode().split("\n")[:-1]
    lines = [line for line in lines if line]
    written = [line for line in lines if line in SAID]
    (left_out,) = [line for line in lines if line not in SAID]
    assert last == "the end"
    assert written[: logs.MOST_LINES] == SAID[: logs.MOST_LINES]
    assert left_out == f"{len(SAID) - len(written)} lines of the log are left out: it could not be written"
    assert len(written) <= logs.MOST_LINES + 1, "one more is in the writer's hands"


TALK = (
    "import logging\nfrom elastic_worker import logs\nlogs.set_up('test')\nfor n in range(900): logging.info('%d', n)\n"
)


def talk(stderr):
    """A program that logs, and ends."""
    environ = {**os.environ, "PYTHONPATH": str(WORKER.parent)}
    return subprocess.run([sys.executable, "-c", TALK], stderr=stderr, env=environ, timeout=60, check=False)


def test_what_was_said_is_written_when_the_process_ends():
    ended = talk(subprocess.PIPE)
    lines = ended.stderr.decode().splitlines()
    assert [line.partition(" elastic-test: ")[2] for line in lines] == [str(number) for number in range(900)]
    assert ended.returncode == 0


def test_a_process_whose_log_cannot_be_written_ends_all_the_same(stalled):
    _, writer = stalled
    assert talk(writer).returncode == 0
    os.close(writer)

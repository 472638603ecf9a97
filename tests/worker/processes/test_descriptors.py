"""How many files and sockets a pod's processes may open."""

import json
import os
import resource
import subprocess
import sys

import pytest

from elastic_worker.contract import EXIT_DO_NOT_RETRY
from elastic_worker.processes import linux
from tests.worker.job.pod import WORKER

PROGRAM = """
import json, resource
from elastic_worker.launcher.main import run_pod
code = run_pod([], is_terminating=lambda: False)  # ends at once: there is nothing to run
print(json.dumps([code, *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 2000, 2000), (2000, 2000, 2000)])
def test_a_launcher_and_what_it_starts_may_open_as_many_as_the_hard_limit_allows(soft, hard, then):
    started = subprocess.run(
        ["sh", "-c", f'ulimit -n {hard} && ulimit -Sn {soft} && exec "$0" -c "$1"', sys.executable, PROGRAM],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(WORKER.parent)},
        check=True,
    )
    assert json.loads(started.stdout) == [EXIT_DO_NOT_RETRY, then, hard]


def test_where_there_is_no_limit_a_million_are_allowed(monkeypatch):
    """Some programs go through all that they might have."""
    allowed = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: allowed.append(limits))
    linux.allow_descriptors()
    assert allowed == [(1 << 20, resource.RLIM_INFINITY)]

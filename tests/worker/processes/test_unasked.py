"""Training processes that a command starts by itself are found, and nothing else is taken for one."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from elastic_worker.processes import unasked

PYTHON = [sys.executable, "-c", "print(flush=True); input()"]


@contextmanager
def started(command, **variables):
    """The program below a shell, as a command's processes are; it runs until the end of the block."""
    environ = {**os.environ, **variables}
    shell = ["/bin/sh", "-c", '"$@"; exit', "sh", *command]
    with subprocess.Popen(shell, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield
        process.stdin.close()


@pytest.mark.parametrize("name", unasked.RANKS)
def test_a_python_that_was_given_a_rank_is_named_with_the_remedy(name):
    with started(PYTHON, **{name: "0"}):
        told = unasked.look(os.environ)
    assert told.startswith(f"the container's command started a training process by itself ({sys.executable} -c print(")
    assert told.endswith(f"{name} is set): each pod would train alone. In Elastic mode {unasked.REMEDY}")
    assert unasked.look(os.environ) == ""


def test_a_script_that_accelerate_starts_by_itself_is_told_accelerates_own_remedy():
    with started(PYTHON, ACCELERATE_MIXED_PRECISION="no"):
        assert unasked.look(os.environ).endswith(unasked.FOR_ACCELERATE)


def test_a_variable_of_the_pods_own_says_nothing():
    with started(PYTHON, LOCAL_RANK="0"):
        assert unasked.look({**os.environ, "LOCAL_RANK": "0"}) == ""


def test_other_programs_may_check_a_node_under_mpirun_before():
    with started(["/bin/sh", "-c", "echo; read line"], OMPI_COMM_WORLD_LOCAL_RANK="0"):
        assert unasked.look(os.environ) == ""


def test_a_python_without_a_rank_is_none():
    with started(PYTHON):
        assert unasked.look(os.environ) == ""

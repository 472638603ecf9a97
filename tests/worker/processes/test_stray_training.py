"""Training processes that a command starts by itself are found, and nothing else is taken for one."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from elastic_worker.processes import stray_training

WAITS = "print(flush=True); input()"
RANK = {"LOCAL_RANK": "0", "WORLD_SIZE": "2"}
ACCELERATE = {"ACCELERATE_MIXED_PRECISION": "no"}
LAUNCHER = "import os, subprocess, sys; subprocess.run(sys.argv[2:], env={**os.environ, **eval(sys.argv[1])})"


@contextmanager
def run(command):
    """The command runs below a shell, as that of a container may, until the end of the block."""
    shell = ["/bin/sh", "-c", '"$@"; exit', "sh", *command]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield
        process.stdin.close()


def launched(variables, *command, launcher=("-c", LAUNCHER)):
    """A python that starts the command with these variables, as launchers do."""
    return [sys.executable, *launcher, repr(variables), *command]


def script(tmp_path, name, text=WAITS):
    file = tmp_path / name
    file.write_text(text)
    return str(file)


def test_a_python_that_was_given_a_rank_is_named_with_the_remedy():
    with run(launched(RANK, sys.executable, "-c", WAITS)):
        fault = stray_training.find_fault(os.environ)
    assert f"started a training process by itself ({sys.executable} -c {WAITS}; LOCAL_RANK is set)" in fault
    assert stray_training.REMEDY in fault
    assert stray_training.find_fault(os.environ) == ""


def test_a_script_that_accelerate_starts_by_itself_gets_accelerates_own_remedy(tmp_path):
    accelerate = script(tmp_path, "accelerate", LAUNCHER)
    with run(launched(ACCELERATE, sys.executable, "-c", WAITS, launcher=[accelerate])):
        assert stray_training.FOR_ACCELERATE in stray_training.find_fault(os.environ)


def test_a_variable_of_the_pods_own_shows_nothing():
    with run(launched(RANK, sys.executable, "-c", WAITS)):
        assert stray_training.find_fault({**os.environ, "LOCAL_RANK": "0"}) == ""


@pytest.mark.parametrize("variables", [RANK, ACCELERATE, RANK | ACCELERATE], ids="+".join)
def test_a_script_for_a_shell_may_export_them_and_run_other_programs_before(variables):
    exports = "; ".join(f"export {name}={value}" for name, value in variables.items())
    with run(["/bin/sh", "-c", f'{exports}; "$0" -c "{WAITS}"; true', sys.executable]):
        assert stray_training.find_fault(os.environ) == ""


@pytest.mark.parametrize(
    "variables", [{"LOCAL_RANK": "0"}, {"WORLD_SIZE": "1"}, ACCELERATE], ids=lambda each: "+".join(each)
)
def test_one_variable_is_not_enough(variables):
    with run(launched(variables, sys.executable, "-c", WAITS)):
        assert stray_training.find_fault(os.environ) == ""


@pytest.mark.parametrize("name", sorted(stray_training.LEADS_TO_TORCHRUN))
def test_what_leads_to_torchrun_may_have_any_of_them(tmp_path, name):
    with run(launched(RANK | ACCELERATE, sys.executable, script(tmp_path, name))):
        assert stray_training.find_fault(os.environ) == ""


def test_other_programs_may_have_a_rank():
    with run(launched(RANK, "/bin/sh", "-c", "echo; read line")):
        assert stray_training.find_fault(os.environ) == ""


def test_programs_may_run_under_mpirun_before_the_training():
    with run(launched({"OMPI_COMM_WORLD_LOCAL_RANK": "0"}, sys.executable, "-c", WAITS)):
        assert stray_training.find_fault(os.environ) == ""


def test_a_python_without_a_rank_is_none():
    with run([sys.executable, "-c", WAITS]):
        assert stray_training.find_fault(os.environ) == ""

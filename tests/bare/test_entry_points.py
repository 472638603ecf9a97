"""What a person types on a bare Debian: packages come before all that is built, and what goes wrong is one line.

In `test_bare_machine.py` all this is real. Here apt is a stand-in that fails, so that no command gets beyond it.
"""

import os
import signal
import subprocess

import pytest

from tests.bare.stand_ins import REPOSITORY, UV, StandIns
from tests.kit.wait import until

COMPLAINT = "E: Failed to fetch: Temporary failure resolving"
COMMANDS = (
    "make demo",
    "make demo-quota",
    "make cluster-up",
    "make image",
    "make release VERSION=1.2.3",
    "make bench-react",
    "make bench-reclaim",
    "make bench-scale",
    "make bench-rescale",
    "make bench-overhead",
    "make bench-torch",
    "uv run --frozen python -m devcluster prepare",
    "uv run --frozen python -m devcluster build",
)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.geteuid() != 0, reason="who is not root is told so before anything else"),
]


@pytest.fixture
def machine(tmp_path):
    made = StandIns(tmp_path)
    uv = made.folder / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    return made


def run(machine, command):
    return subprocess.run(
        command.split(),
        cwd=REPOSITORY,
        env=machine.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def told(output):
    """Its lines, without those that say what is being done, and make's own."""
    return [line for line in output.splitlines() if not line.startswith(("…", "✓", "✗", " ", "make"))]


@pytest.mark.parametrize("command", COMMANDS)
def test_packages_come_first_and_that_they_cannot_be_had_is_one_line(machine, command):
    machine.add("apt-get", f'echo "{COMPLAINT}" >&2; exit 100')
    done = run(machine, command)
    assert done.returncode != 0
    (line,) = told(done.stdout)
    assert COMPLAINT in line
    assert "look at the network" in line
    assert machine.calls()[0].startswith("apt-get install")
    assert {call.split()[0] for call in machine.calls()} == {"apt-get"}


def test_without_apt_the_packages_are_named(machine):
    (line,) = told(run(machine, "make demo").stdout)
    assert "please install with your package manager: " in line
    assert "buildah" in line


def test_a_command_that_is_interrupted_stops_what_it_runs_and_says_so_in_one_line(machine):
    machine.add("apt-get", "trap 'exit 0' TERM\nsleep 60 &\nwait")
    command = ["uv", "run", "--frozen", "python", "-m", "devcluster", "prepare"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=machine.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        until("apt to be at work", machine.calls, seconds=60)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert told(output) == ["devcluster: stopped; `make down` takes away a cluster that is still up"]

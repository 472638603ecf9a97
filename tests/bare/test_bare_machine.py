"""A stranger's first command: the README's, typed on a machine with nothing but Debian, Python and make."""

import contextlib
import re

import pytest

from devcluster import processes
from tests.bare.machine import switched_on
from tests.devcluster.machine import differences, look

NAME = "demo"  # of the cluster that `make demo` brings up

pytestmark = [pytest.mark.extended, pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1200)]


def test_the_commands_of_the_readme_run_on_a_machine_where_nothing_is_installed():
    running = {mark.split("/")[0] for mark in processes.marks().values()}
    assert NAME not in running, f"a cluster {NAME!r} runs here: `make down` first, for its cgroups have the same names"
    before = look(NAME)
    with switched_on() as machine, contextlib.ExitStack() as at_the_end:
        at_the_end.callback(machine.run, "make down", seconds=60)
        found = machine.run(
            "for program in apt-get containerd debootstrap go uv; do command -v $program; done", seconds=10
        )
        assert found.said == "/usr/bin/apt-get\n"
        demo = machine.run("make demo", seconds=600)
        assert demo.status == 0, demo.said
        assert re.search(r"installing Debian packages.*debootstrap", demo.said)
        assert "Done in" in demo.said
        down = machine.run("make down", seconds=60)
        assert down.status == 0, down.said
        tests = machine.run("make test PYTEST='--collect-only --quiet'", seconds=300)
        assert tests.status == 0, tests.said
        assert re.search(r"^\d+/\d+ tests collected", tests.said, re.MULTILINE), tests.said
        go = machine.run(f".venv/bin/python -c '{WHICH_GO}'", seconds=120)
        assert "go version go1.26" in go.said, go.said
    assert differences(before, look(NAME)) == {}


WHICH_GO = """\
from devcluster import binaries, golang, shell
from devcluster.progress import Progress
print(shell.run(golang.ensure(Progress(), module=binaries.KWOK.folder()), "version"))
"""

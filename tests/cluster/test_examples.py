"""The examples that are whole, on real kubelets: each README.md's commands are run as they stand.

What needs no cluster of them runs in `tests/examples/test_grown_and_shrunk.py`.
"""

import json
import re

import pytest

from devcluster import images, torchtree
from devcluster.progress import Progress
from tests.cluster.lab import IMPORT_SECONDS
from tests.cluster.shell import shell_of
from tests.docs.pages import blocks
from tests.examples.folders import NAMES, WITH_TRAINERS, arguments, epochs_in, on_a_cluster, processes_of, spec_of

SCALED = re.compile(r"--replicas=(\d+)")


@pytest.fixture
def shell(team, tmp_path):
    """In a copy of the examples."""
    return shell_of(team, tmp_path)


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_the_commands_of_the_list_of_examples_start_those_that_use_the_toys_script(shell, team):
    (block,) = blocks("examples/README.md", "sh")
    shown = shell.run(block.text)
    for name in ("fixed-size", "heterogeneous", "launch-sh"):
        assert name in shown
        team.wait_for(name, "Running", seconds=IMPORT_SECONDS)
        team.wait_log(f"{name}-master-0", ") loss =", times=3, seconds=2 * IMPORT_SECONDS)


TRAINERS = "docker.io/local/trainers:1"


def use_an_image_with_trainers(shell, team):
    """As its README says: the image is the first thing to change."""
    progress = Progress(quiet=True)
    packages = torchtree.ensure(progress, tree=torchtree.TRAINERS)
    team.lab.cluster.load_image(images.with_packages(progress, packages=packages, ref=TRAINERS), progress=progress)
    shell.run(f"sed -i 's|docker.io/local/base:1|{TRAINERS}|' examples/*/*.yaml")


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_its_readme_shrink_it_and_let_it_grow_and_it_goes_on_to_its_end(shell, team, name):
    if name in WITH_TRAINERS:
        use_an_image_with_trainers(shell, team)
    seen = [(-1, 0)]

    def trains(pods):
        """Until three epochs, later than those seen before, were trained by so many on end."""
        last = seen[-1][0]

        def found():
            told = [each for each in epochs_in(team.logs(f"{name}-master-0")) if each[0] > last][-3:]
            return told if [size for _, size in told] == [pods * processes_of(name)] * 3 else []

        seen.extend(team.wait(f"{pods} pods to train", found, seconds=2 * IMPORT_SECONDS))

    for line in on_a_cluster(name):
        told = shell.run(line)
        if " apply " in line:
            trains(spec_of(name).max_replicas)
        elif scaled := SCALED.search(line):
            trains(int(scaled[1]))
    assert epochs_in(told)[0][0] <= 1, "the last command shows the master's log from its first epoch on"
    shorter = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": arguments(name, epochs="1")}]
    team.edit(name, suspend=True)  # the template stays as it is while the job runs
    team.wait_for(name, "Suspended")
    team.kubectl("patch", "elasticpytorchjob", name, "--type=json", "-p", json.dumps(shorter))
    team.edit(name, suspend=False)
    status = team.wait_for(name, "Succeeded", seconds=2 * IMPORT_SECONDS)
    assert (status["restarts"], status.get("failures", 0)) == (0, 0)
    assert status["resizes"] >= 2

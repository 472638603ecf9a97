"""The shared cluster of these tests, with the operator in it, and a namespace for each test.

ELASTIC_TEST_KEEP=1 leaves the cluster up at the end, for the next run to take it as it is. ELASTIC_TEST_NAME= names
another cluster than "test", so that two runs do not meet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from devcluster import projectimage
from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.cluster.elastic import Training
from tests.cluster.install import Installation
from tests.cluster.lab import Lab, Team, two_teams

NAME = os.environ.get("ELASTIC_TEST_NAME", "test")
NODES = 2
GPUS = 4
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the cluster."""
    for item in items:
        if "tests/cluster/" in item.nodeid:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember whether the test failed, for the fixture that shows what the cluster looked like."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def has_failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has, for fixtures that look back on it."""
    return lambda: request.node.stash.get(FAILED, False)


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[Lab]:
    """Two nodes with four GPUs each, and the operator, installed as a user installs it; see `Installation`."""
    progress = Progress()
    cluster = Cluster.up(
        NAME,
        nodes=NODES,
        gpus=GPUS,
        kubernetes=pytestconfig.getoption("--kubernetes"),
        network_policies=True,
        targets=projectimage.TARGETS,
        progress=progress,
    )
    lab = Lab(cluster)
    Installation(lab).install()
    yield lab
    lab.http.close()
    if not os.environ.get("ELASTIC_TEST_KEEP"):
        cluster.down(progress=Progress(quiet=True))


@pytest.fixture
def teams(lab: Lab, has_failed: Callable[[], bool]) -> Iterator[list[Team]]:
    """Two namespaces; they, and what a test did to the nodes, are gone when it ends."""
    with two_teams(lab) as made:
        yield made
        if has_failed():
            for team in made:
                print(team.report())
        lab.mend_nodes()


@pytest.fixture
def team(teams: list[Team]) -> Team:
    """A namespace of the test's own."""
    return teams[0]


@pytest.fixture
def training(team: Team) -> Iterator[Training]:
    """A job in Elastic mode to be; nothing of it is left at the end."""
    found = Training(team)
    yield found
    found.nothing_left()

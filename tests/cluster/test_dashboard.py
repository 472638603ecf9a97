"""A real Prometheus asks the real operator, and every question of the dashboard has an answer after a day in the life.

The day: a library job trains, grows and shrinks, and gives its GPUs to the owner's plain pod; another job waits.
"""

import pytest

from generate import dashboard
from tests.cluster.examples import FOLDER, example, give_files, give_volume
from tests.cluster.install import Installation
from tests.cluster.lab import IMPORT_SECONDS, wait
from tests.cluster.policies import guaranteed
from tests.cluster.prometheus import Prometheus
from tests.cluster.templates import command, foreign_pod, job

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

NEVER_HERE = {
    f"ElasticPyTorch{alert}" for alert in ("NodesUnreachable", "OperatorDown", "TwoLeaders", "ReclaimStopped")
}
"""Alerts of troubles that a working operator has not."""


@pytest.fixture
def prometheus(lab, tmp_path):
    """It has the alerts that the chart gives to a Prometheus operator."""
    with Prometheus(Installation(lab), tmp_path) as found:
        yield found


def test_every_panel_of_the_dashboard_shows_something(teams, prometheus):
    borrower, owner = teams
    with guaranteed({borrower: 1, owner: 7}):
        trains_changes_and_gives_back(borrower, owner)
        missing = dashboard.queries()
        wait("data in all panels", lambda: ask_again(prometheus, missing, borrower), report=lambda: str(missing))
        assert len(dashboard.queries()) > 20
        assert prometheus.alerts().keys() >= NEVER_HERE
        assert {prometheus.alerts()[name] for name in NEVER_HERE} == {"inactive"}


def trains_changes_and_gives_back(borrower, owner):
    give_files(borrower, "library-script", train_py=FOLDER / "library" / "train.py")
    give_volume(borrower)
    borrower.apply(example("library", gpus=1, maxReplicas=1, args=["--epochs", "100000", "--pause", "0.02"]))
    borrower.wait_for("library", "Running", pods=1, seconds=IMPORT_SECONDS)
    borrower.scale("library", 4)
    borrower.wait_for("library", "Running", pods=4, seconds=IMPORT_SECONDS)
    owner.apply(foreign_pod("visitor", gpus=4), foreign_pod("second", gpus=1))
    owner.wait("the visitors to run", lambda: {p["status"]["phase"] for p in owner.lab.pods(owner.name)} == {"Running"})
    borrower.apply(job("waiting", min=4, max=4, template=command()))
    borrower.wait_for("waiting", "Queued")


def ask_again(prometheus, missing, team):
    """Drops the queries that have found something by now; whether none is left."""
    for title, query in list(missing.items()):
        if prometheus.query(dashboard.filled_in(query, namespace=team.name, job="library")):
            del missing[title]
    return not missing


def test_a_deleted_jobs_series_are_gone(team, prometheus):
    team.apply(job(min=1, max=1, template=command(gpus=0)))
    mine = f'{{__name__=~"elastic_pytorch_job_.*", namespace="{team.name}"}}'
    team.wait("the job's series", lambda: len(prometheus.query(mine)) > 5)
    team.kubectl("delete", "elasticpytorchjobs", "toy", "--wait")
    team.wait("the job's series to end", lambda: not prometheus.query(mine))

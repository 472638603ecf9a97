"""What becomes of the network policies of jobs with other settings: on a cluster that enforces policies.

With the usual ones a job is behind its policy in `tests/cluster/test_elastic_training.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastic_api.job import PLURAL
from elastic_operator.build.names import service_name
from elastic_worker.contract import LABEL_JOB_UID
from tests.cluster.elastic import Training, trainer
from tests.cluster.lab import Lab, two_teams
from tests.cluster.templates import command, job
from tests.network.conftest import GPUS
from tests.network.operator import Operator
from tests.network.probing import BLOCKED, OPEN, PORTS, REFUSED, address, attempts_of
from tests.network.scene import API_SERVER, DNS, Scene

pytestmark = [pytest.mark.extended, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def scene(lab: Lab, operator: Operator) -> Iterator[Scene]:
    """Its group has formed behind the job's policy, which is there before the first pod."""
    operator.runs_with(job_policies=True)
    with two_teams(lab) as (near, far):
        training = Training(near)
        training.starts(2, trainer(gpus=GPUS))
        yield Scene(training, far)


def test_a_job_that_may_connect_to_nothing_else_has_its_own_pods_and_dns(scene, operator):
    operator.runs_with(job_policies=True, job_egress=[])
    scene.come_to_be_behind(["Ingress", "Egress"])
    scene.trains_anew()
    scene.operator_sees_steps()
    doors = [*scene.doors(), scene.service()]
    # No DNS server runs on the local cluster.
    others = [(address(scene.near, "passer-by"), PORTS[0]), (address(scene.far, "stranger"), PORTS[0]), API_SERVER]
    for outcomes in scene.attempts([*doors, DNS, *others]):
        assert outcomes == [*[OPEN] * len(doors), REFUSED, BLOCKED, BLOCKED, BLOCKED]


def test_switched_off_no_more_policies_are_made_and_without_the_old_ones_pods_are_open_again(scene, operator):
    operator.runs_with(job_policies=True)
    scene.come_to_be_behind(["Ingress"])
    operator.runs_with(job_policies=False)
    scene.near.apply(job("later", template=command(gpus=0)))
    scene.near.wait_for("later", "Running")
    assert service_name("later") not in scene.policies()
    scene.near.kubectl("delete", PLURAL, "later", "--wait")

    scene.near.kubectl("delete", "networkpolicies", "-l", LABEL_JOB_UID)
    scene.come_to_be_behind([])
    doors = [*scene.doors(), scene.service()]
    for outcomes in attempts_of(scene.outsiders(), doors):
        assert outcomes == [OPEN] * len(doors)

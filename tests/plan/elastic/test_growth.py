"""When an Elastic job grows by itself: a script that has no checkpoint to wait for loses work each time."""

import pytest

from elastic_operator.api.status import Change, Limit
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.snapshot import PodShape, Snapshot
from elastic_operator.plan.facts.team import Flavor
from elastic_operator.plan.job.demand import demand_of, job_shape
from tests.plan.allocate.world import make_node
from tests.plan.elastic.jobs import make_elastic_job, make_elastic_spec, make_group
from tests.plan.jobs import START, at, make_job, make_spec, see

GROWN = [Change(time=at(100), from_=1, to=2, reason="ScaledUp")]


def demanded(job):
    shape = PodShape(requests={"nvidia.com/gpu": 1}, gpus=1)
    return demand_of(see(job), job_shape(shape, shape, flavors=(Flavor(),)))


def grown_job(**elasticity):
    spec = make_elastic_spec(elasticity=elasticity)
    return make_elastic_job(make_group(1), spec=spec, history=GROWN, last_resize_time=at(110))


def test_without_checkpoints_the_next_growth_waits_for_ten_minutes_and_says_what_would_help():
    demand = demanded(grown_job())
    assert (demand.grow_after, demand.loses_work) == (START + 700, True)
    snapshot = Snapshot(now=START + 200, nodes=(make_node("n1", gpus=8),), jobs=(demand,))
    grant = allocate(snapshot)["job-uid"]
    assert (grant.limit, grant.wake_at, grant.create) == (Limit.SCALE_UP_DELAYED, START + 700, ())
    assert "Set elasticity.checkpointPath" in grant.message


@pytest.mark.parametrize("job", [grown_job(checkpointPath="/c"), make_job(spec=make_spec(), status=grown_job().status)])
def test_with_a_checkpoint_to_wait_for_and_under_torchrun_only_the_users_delay_counts(job):
    assert (demanded(job).grow_after, demanded(job).loses_work) == (START + 140, False)


def test_a_longer_delay_of_the_users_is_theirs():
    demand = demanded(grown_job(scaleUpDelaySeconds=3600))
    assert (demand.grow_after, demand.loses_work) == (START + 3710, False)

"""When a job grows that loses work with each change of size: once the gain is worth the loss (148)."""

import pytest

from elastic_api.status import MAX_HISTORY, Change, SizeReason, Training
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.change_times import ChangeTimes
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.team import Flavor
from elastic_operator.plan.job.demand import demand_of
from tests.plan.allocate.world import make_job as make_demand
from tests.plan.allocate.world import make_node, outcome
from tests.plan.elastic.jobs import make_elastic_job, make_elastic_spec, make_group
from tests.plan.jobs import START, at, make_job, make_spec, see

GROWN = [Change(time=at(100), from_=1, to=2, reason="ScaledUp")]
TAKEN_BACK = Change(time=at(300), from_=3, to=2, reason="QuotaReclaimed")
OFTEN_LOST = [Change(time=at(200), from_=2, to=1, reason="PodLost")] * MAX_HISTORY
BEGUN_AGAIN = [
    Change(time=at(310), from_=0, to=2, reason="Started"),
    Change(time=at(300), from_=2, to=0, reason="PreemptedByJob"),
]
HALF_AN_HOUR = 1800.0
OF_LIBRARY = Training(step=9, samples_seen=72)


def demanded(job):
    shape = PodShape(requests={"nvidia.com/gpu": 1}, gpus=1)
    return demand_of(see(job), job_shape(shape, shape, flavors=(Flavor(),)))


def elastic_job(history=GROWN, training=None, **elasticity):
    """A job in Elastic mode, with two pods of four."""
    spec = make_elastic_spec(maxReplicas=4, elasticity=elasticity)
    status = {"history": history, "last_resize_time": at(110), "training": training, "target_replicas": 2}
    return make_elastic_job(make_group(1), spec=spec, **status)


def torchrun_job(history=GROWN, *, resizes=0, **elasticity):
    """The same in Torchrun mode."""
    spec, status = make_spec(maxReplicas=4, elasticity=elasticity), elastic_job(history).status
    return make_job(make_group(1), spec=spec, status=status.model_copy(update={"resizes": resizes}))


LOSES = {
    "a script in Torchrun mode": torchrun_job(),
    "a plain script in Elastic mode that names no checkpoints": elastic_job(),
    "one that has grown once, and gave it back": torchrun_job([TAKEN_BACK, *GROWN]),
    "one that has grown once, was stopped and began again": torchrun_job([*BEGUN_AGAIN, *GROWN]),
    "one that has lost so many pods since it grew that its history does not say so": torchrun_job(
        OFTEN_LOST, resizes=1
    ),
    "one of which only steps are known": elastic_job(training=Training(step=9)),
}
LOSES_NOTHING = {
    "a script that is asked for a checkpoint first": elastic_job(checkpointPath="/c"),
    "one that uses the library": elastic_job(training=OF_LIBRARY),
    "one whose user wants no delay": torchrun_job(scaleUpDelaySeconds=0),
}
HAS_NEVER_GROWN = {
    "one that only started": torchrun_job([Change(time=at(100), from_=0, to=1, reason="Started")]),
    "one that lost many pods": torchrun_job(OFTEN_LOST),
}


@pytest.mark.parametrize("fact", LOSES)
def test_a_change_of_size_costs_half_an_hour_of_all_the_work_of(fact):
    demand = demanded(LOSES[fact])
    assert (demand.resize_cost, demand.grow_at(4)) == (HALF_AN_HOUR, demand.changed_at + HALF_AN_HOUR)


@pytest.mark.parametrize("fact", LOSES_NOTHING)
def test_a_change_of_size_costs_nothing_of(fact):
    assert demanded(LOSES_NOTHING[fact]).resize_cost == 0


@pytest.mark.parametrize("fact", HAS_NEVER_GROWN)
def test_the_first_growth_waits_for_the_delay_only_of(fact):
    demand = demanded(HAS_NEVER_GROWN[fact])
    assert (demand.resize_cost, demand.grow_at(4)) == (HALF_AN_HOUR, demand.may_grow_at)


def test_the_wait_begins_with_the_last_change_of_size_and_says_what_would_help():
    demand = demanded(elastic_job([TAKEN_BACK, *GROWN]))
    assert demand.changed_at == START + 300
    inputs = AllocationInputs(now=START + 400, nodes=(make_node("n1", gpus=8),), jobs=(demand,))
    grant = allocate(inputs)["job-uid"]
    assert (grant.size_reason.code, grant.requeue_at, grant.assignment.create) == (
        SizeReason.SCALE_UP_DELAYED,
        START + 300 + HALF_AN_HOUR,
        (),
    )
    assert "run it in Elastic mode" in grant.message


def test_a_longer_delay_of_the_users_is_theirs():
    assert demanded(torchrun_job(scaleUpDelaySeconds=3600)).grow_at(4) == START + 3710


def job(pods, most, waited, **more):
    """A job for which growth costs 600 s, and which has had so many pods for `waited` seconds of 1000."""
    on, cost = " ".join(["n1"] * pods), {"resize_cost": 600.0, "changed_at": 1000.0 - waited}
    return make_demand("a", 1, most, on=on, free=pods, **cost, **more)


def size(gpus, demand):
    """How many pods the job has with so many GPUs."""
    return outcome([make_node("n1", gpus)], [demand])["a"].count("@") + len(demand.members)


@pytest.mark.parametrize(
    ("gpus", "pods", "most", "waited", "becomes"),
    [
        pytest.param(8, 2, 8, 600, 8, id="after ten minutes twice as many are worth it, and then whatever there is"),
        pytest.param(3, 2, 8, 600, 2, id="but not a half more"),
        pytest.param(3, 2, 8, 1200, 3, id="which is after twenty"),
        pytest.param(8, 2, 8, 299, 8, id="four times as many are worth it sooner"),
        pytest.param(7, 2, 7, 200, 2, id="but not after a third of the time"),
        pytest.param(9, 8, 16, 4799, 8, id="one more beside eight waits for eight times as long"),
        pytest.param(9, 8, 16, 4800, 9, id="and comes then"),
        pytest.param(33, 32, 64, 7200, 33, id="no GPU is idle for more than two hours"),
    ],
)
def test_growth_waits_until_it_is_worth_the_work_that_it_costs(gpus, pods, most, waited, becomes):
    assert size(gpus, job(pods, most, waited)) == becomes


def test_the_next_look_is_when_a_smaller_step_is_worth_it():
    demand = job(4, 8, 600)
    times = []
    now = 1000.0
    while (now := ChangeTimes().next(AllocationInputs(now=now, nodes=(), jobs=(demand,)))) < 9999:
        times.append(now - demand.changed_at)
    assert times == [800, 1200, 2400]


def test_what_it_had_when_it_was_told_to_grow_comes_at_once():
    grown = job(2, 8, 0)
    assert size(8, make_demand("a", 1, 8, on="n1 n1", free=4, resize_cost=600.0, changed_at=1000.0)) == 4
    assert size(8, grown) == 2

"""What the allocator is told of a job: its kind of GPU, where its pods may go then, since when it runs or waits."""

from __future__ import annotations

import pytest

from elastic_api.job import JobSpec
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.team import Flavor
from elastic_operator.plan.job.demand import demand_of
from elastic_operator.plan.job.observe import observe
from tests.plan.jobs import START, at, make_condition, make_job, make_spec, make_status

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"
A100 = Flavor("a100", (GPU,), {"gpu": "a100"})
H100 = Flavor("h100", (GPU,), {"gpu": "h100"})
OTHER = Flavor("amd", (AMD,))
FLAVORS = (A100, H100, OTHER)


def shape(*, resource: str = GPU, gpus: int = 1, **selector: str) -> PodShape:
    return PodShape(requests={"cpu": 1000} | ({resource: gpus} if gpus else {}), gpus=gpus, node_selector=selector)


def demand(*, spec: JobSpec | None = None, **status) -> JobDemand:
    job = make_job([], spec=spec, status=make_status(target_replicas=0, replicas=0, **status))
    return demand_of(observe(job, START + 100), job_shape(shape(), shape(), flavors=(Flavor(),)))


def test_with_one_flavor_for_all_nodes_shapes_stay_the_objects_they_are():
    pod = shape()
    found = job_shape(pod, pod, flavors=(Flavor(),))
    assert (found.flavor, found.flavor_problem) == ("default", "")
    assert found.master is pod
    assert found.worker is pod


def test_a_job_without_gpus_is_of_no_flavor():
    found = job_shape(shape(gpus=0), shape(gpus=0), flavors=FLAVORS)
    assert (found.flavor, found.flavor_problem) == ("", "")


def test_a_job_is_of_the_one_flavor_that_has_its_resource_and_is_kept_to_its_nodes():
    limited = Flavor("amd", (AMD,), {"gpu": "mi300"})
    found = job_shape(shape(resource=AMD, zone="z"), shape(resource=AMD), flavors=(A100, limited))
    assert found.flavor == "amd"
    assert found.master.node_selector == {"zone": "z", "gpu": "mi300"}
    assert found.worker.node_selector == {"gpu": "mi300"}


def test_the_node_selector_tells_flavors_of_one_resource_apart():
    assert job_shape(shape(gpu="h100"), shape(gpu="h100"), flavors=FLAVORS).flavor == "h100"


def test_the_node_selector_of_one_role_decides_for_both():
    found = job_shape(shape(gpu="h100"), shape(), flavors=FLAVORS)
    assert found.flavor == "h100"
    assert found.worker.node_selector == {"gpu": "h100"}


def test_a_role_without_gpus_may_be_anywhere():
    found = job_shape(shape(gpu="a100"), shape(gpus=0, gpu="h100"), flavors=FLAVORS)
    assert found.flavor == "a100"
    assert found.worker.node_selector == {"gpu": "h100"}


def test_a_job_that_suits_several_flavors_is_told_what_to_add():
    found = job_shape(shape(), shape(), flavors=FLAVORS)
    assert found.flavor == ""
    assert found.flavor_problem == (
        "nvidia.com/gpu is a resource of several flavors (a100, h100). Add one of these to nodeSelector in the pod"
        " template: gpu: a100 for a100; gpu: h100 for h100."
    )


@pytest.mark.parametrize("worker", [shape(gpu="v100"), shape(gpu="a100")])
def test_a_job_that_suits_no_flavor_is_told_which_there_are(worker: PodShape):
    found = job_shape(shape(gpu="h100" if worker.node_selector["gpu"] == "a100" else "v100"), worker, flavors=FLAVORS)
    assert found.flavor == ""
    assert found.flavor_problem.startswith(
        "nodeSelector of the pod templates excludes every flavor that has nvidia.com"
    )
    assert found.flavor_problem.endswith("It must agree with one of: gpu: a100 for a100; gpu: h100 for h100.")


def test_a_job_that_mixes_resources_of_two_flavors_is_told():
    found = job_shape(shape(), shape(resource=AMD), flavors=FLAVORS)
    assert found.flavor == ""
    assert found.flavor_problem.startswith("No flavor has amd.com/gpu and nvidia.com/gpu together.")


def test_a_job_without_conditions_waits_since_it_was_created():
    assert demand().waiting_since == START


def test_a_job_waits_since_it_was_not_admitted_any_more_or_not_ready():
    conditions = [make_condition("Suspended", "False", 10), make_condition("Admitted", "False", 70)]
    assert demand(conditions=conditions).waiting_since == START + 70


def test_a_job_that_was_suspended_waits_since_it_was_resumed():
    conditions = [make_condition("Admitted", "False", 10), make_condition("Suspended", "False", 90)]
    assert demand(conditions=conditions).waiting_since == START + 90


def test_a_job_runs_since_its_present_incarnation_does():
    assert demand().running_since is None
    assert demand(running_since=at(30)).running_since == START + 30


def test_a_job_may_be_taken_from_unless_it_says_otherwise():
    assert demand().preemptible
    assert not demand(spec=make_spec(preemptible=False)).preemptible

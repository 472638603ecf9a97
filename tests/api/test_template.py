"""What the operator reads in a pod template."""

import pytest

from elastic_api.parse import parse_spec
from elastic_api.template import gpus_of, main_container, nproc_of, requests_of
from tests.api.jobs import make_container, make_job, make_template, with_gpus


def asking(name: str = "c", **requests: object) -> dict:
    return make_container(name=name, resources={"requests": requests})


def test_the_main_container_is_the_one_called_pytorch():
    sidecar = make_container(name="sidecar")
    assert main_container(make_template(sidecar, make_container()))["name"] == "pytorch"


def test_without_one_called_pytorch_the_main_container_is_the_first():
    assert main_container(make_template(make_container(name="a"), make_container(name="b")))["name"] == "a"


def test_a_pod_asks_for_the_sum_of_its_containers():
    template = make_template(asking("a", cpu="100m", memory="1Gi"), asking("b", cpu=1))
    assert requests_of(template) == {"cpu": 1100, "memory": 2**30}


def test_a_limit_without_a_request_is_a_request():
    container = make_container(resources={"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"cpu": "1"}})
    assert requests_of(make_template(container)) == {"cpu": 1000, "memory": 1024}


def test_init_containers_run_before_the_others_and_count_only_where_they_ask_for_more():
    init = [asking("i", cpu=3, memory=1), asking("j", cpu=2, memory=5)]
    template = make_template(asking("a", cpu=1, memory=2), asking("b", cpu=1, memory=2), initContainers=init)
    assert requests_of(template) == {"cpu": 3000, "memory": 5}


def test_a_sidecar_adds_to_the_containers_and_to_the_init_containers_after_it():
    sidecar = {**asking("s", cpu=1), "restartPolicy": "Always"}
    before, after = asking("i", cpu=4), asking("j", cpu=4)
    assert requests_of(make_template(asking("a", cpu=2), initContainers=[sidecar])) == {"cpu": 3000}
    assert requests_of(make_template(asking("a", cpu=2), initContainers=[before, sidecar])) == {"cpu": 4000}
    assert requests_of(make_template(asking("a", cpu=2), initContainers=[sidecar, after])) == {"cpu": 5000}


def test_a_pods_own_request_replaces_its_containers_and_overhead_comes_on_top():
    template = make_template(
        asking("a", cpu=4, memory=7), resources={"requests": {"cpu": 3}}, overhead={"cpu": "250m", "memory": 3}
    )
    assert requests_of(template) == {"cpu": 3250, "memory": 10}


def test_the_gpus_of_a_pod_are_those_of_all_its_containers():
    helper = with_gpus(1, name="helper")
    assert gpus_of(make_template(with_gpus(2), helper)) == 3
    assert gpus_of(make_template()) == 0


def test_the_resources_that_count_as_gpus_can_be_named():
    container = make_container(resources={"limits": {"nvidia.com/gpu": 1, "amd.com/gpu": "4"}})
    assert gpus_of(make_template(container), ("amd.com/gpu",)) == 4


@pytest.mark.parametrize(
    ("template", "nproc", "expected"),
    [
        (make_template(), "auto", 1),
        (make_template(with_gpus(4)), "auto", 4),
        (make_template(with_gpus("4")), "auto", 4),
        (make_template(with_gpus(4), with_gpus(1, name="helper")), "auto", 4),
        (make_template(with_gpus(4)), 2, 2),
    ],
)
def test_a_pod_runs_one_process_per_gpu_of_its_main_container_unless_told_otherwise(template, nproc, expected):
    spec = parse_spec(make_job(template=template, nprocPerNode=nproc))
    assert nproc_of(spec, "master") == nproc_of(spec, "worker") == expected


def test_master_and_workers_run_as_many_processes_as_their_own_templates_have_gpus():
    spec = parse_spec(make_job(template=make_template(with_gpus(4)), master={"template": make_template(with_gpus(2))}))
    assert (nproc_of(spec, "master"), nproc_of(spec, "worker")) == (2, 4)

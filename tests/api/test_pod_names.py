import pytest

from elastic_api.pod_names import parse_pod_name, pod_name


@pytest.mark.parametrize(("role", "index"), [("master", 0), ("worker", 0), ("worker", 7), ("worker", 4095)])
def test_the_name_of_a_pod_tells_its_role_and_index(role, index):
    assert parse_pod_name("toy", pod_name("toy", role, index)) == (role, index)


@pytest.mark.parametrize(
    "name",
    [
        "toy-worker-01",
        "toy-worker-00",
        "toy-worker-4096",
        "toy-worker-10000",
        "toy-worker--1",
        "toy-worker-",
        "toy-worker-\u0661",
        "toy-worker-1\n",
        "toy-worker-1-x",
        "toy-master-1",
        "toy-master",
        "toy-helper-0",
        "toy",
        "toys-worker-1",
        "my-toy-worker-1",
        "",
    ],
)
def test_a_name_that_no_pod_of_the_job_has_is_not_read_as_one(name):
    assert parse_pod_name("toy", name) is None


def test_a_job_whose_name_ends_like_a_pods_does_not_get_the_pods_of_the_other():
    assert parse_pod_name("toy", "toy-worker-1-worker-2") is None
    assert parse_pod_name("toy-worker-1", "toy-worker-1-worker-2") == ("worker", 2)

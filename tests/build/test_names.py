import pytest

from elastic_operator.build import names


@pytest.mark.parametrize(("role", "index"), [("master", 0), ("worker", 0), ("worker", 7), ("worker", 4095)])
def test_the_name_of_a_pod_tells_its_role_and_index(role, index):
    assert names.parse_pod_name("toy", names.pod_name("toy", role, index)) == (role, index)


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
    assert names.parse_pod_name("toy", name) is None


def test_a_job_whose_name_ends_like_a_pods_does_not_get_the_pods_of_the_other():
    assert names.parse_pod_name("toy", "toy-worker-1-worker-2") is None
    assert names.parse_pod_name("toy-worker-1", "toy-worker-1-worker-2") == ("worker", 2)


def test_the_longest_names_are_dns_labels():
    longest = "j" * 51
    assert len(names.pod_name(longest, "worker", 4095)) == 63
    assert len(names.service_name(longest)) <= 63
    assert len(names.secret_name(longest, "5f0c9c0e-9f5c-4c8e-a7c5-2f1b6d1f0a11")) <= 253


def test_the_secret_of_a_job_is_not_that_of_another_of_its_name():
    assert names.secret_name("toy", "u1") != names.secret_name("toy", "u2")


def test_each_incarnation_of_each_job_has_a_rendezvous_of_its_own():
    assert names.rendezvous_id("u1", 2) == "u1-2"
    assert len({names.rendezvous_id(uid, number) for uid in ("u1", "u2") for number in (1, 2)}) == 4

from elastic_api.pod_names import pod_name
from elastic_operator.build import names


def test_the_longest_names_are_dns_labels():
    longest = "j" * 51
    assert len(pod_name(longest, "worker", 4095)) == 63
    assert len(names.service_name(longest)) <= 63
    assert len(names.secret_name(longest, "5f0c9c0e-9f5c-4c8e-a7c5-2f1b6d1f0a11")) <= 253


def test_the_secret_of_a_job_is_not_that_of_another_of_its_name():
    assert names.secret_name("toy", "u1") != names.secret_name("toy", "u2")


def test_each_incarnation_of_each_job_has_a_rendezvous_of_its_own():
    assert names.rendezvous_id("u1", 2) == "u1-2"
    assert len({names.rendezvous_id(uid, number) for uid in ("u1", "u2") for number in (1, 2)}) == 4

"""The specs of jobs: equal ones are parsed once, and are one object while a job has them (195)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.objects import CustomObject, decode
from elastic_operator.read import specs
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.specs import Specs
from tests.api.jobs import make_job

GPU = "nvidia.com/gpu"


def job(name: str, *, generation: int = 1, incarnation: int = 1, ends: bool = False, **fields: Any) -> CustomObject:
    body = {**make_job(name, **fields), "status": {"incarnation": incarnation}}
    body["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if ends else {}
    body["metadata"] |= {"uid": name, "resourceVersion": f"{generation}{incarnation}", "generation": generation}
    return decode(body, CustomObject)


def read_specs() -> Specs:
    return Specs(FirstSeen(ServerClock()), (GPU,))


def test_equal_specs_are_parsed_once_and_are_one_object():
    found = read_specs()
    with patch.object(specs, "parse_spec", wraps=specs.parse_spec) as parse:
        one, two, other = (found.parse(job(name, maxReplicas=size)) for name, size in (("a", 4), ("b", 4), ("c", 5)))
    assert one is two
    assert other.spec is not None
    assert other.spec.max_replicas == 5
    assert parse.call_count == 2


def test_an_equal_spec_of_another_generation_is_another():
    found = read_specs()
    assert [found.parse(job(name, generation=number)).generation for name, number in (("a", 1), ("b", 2))] == [1, 2]


def test_a_spec_is_not_kept_without_a_job():
    found = read_specs()
    for number in range(3):
        found.parse(job(f"a{number}", maxReplicas=4 + number))
    found.forget_deleted({"a0"})
    assert [parsed.spec.max_replicas for parsed in found._equal.values()] == [4]


def test_an_unreadable_spec_leaves_each_job_its_own_last_one():
    found = read_specs()
    for name, size in (("a", 4), ("b", 5)):
        found.parse(job(name, maxReplicas=size))
    unreadable = [found.parse(job(name, generation=2, maxReplicas=0)) for name in "ab"]
    assert [parsed.spec.max_replicas for parsed in unreadable] == [4, 5]
    assert all(parsed.invalid for parsed in unreadable)


def test_an_edit_of_the_spec_parses_no_status_again():
    found = read_specs()
    before = job("a", incarnation=3)
    edited = job("a", incarnation=3, generation=2, maxReplicas=7)
    written = job("a", incarnation=4, generation=2, maxReplicas=7)
    with patch.object(specs, "parse_status", wraps=specs.parse_status) as parse:
        for body in (before, edited):
            found.parse(body)
            assert found.status(body).incarnation == 3
            assert found.has_read(body)
        assert parse.call_count == 1
        assert not found.has_read(written)
        assert found.status(written).incarnation == 4


def test_an_edited_spec_counts_as_unread_until_it_is_parsed():
    found, edited = read_specs(), job("a", generation=2)
    found.parse(job("a"))
    assert not found.has_read(edited)
    found.parse(edited)
    assert found.has_read(edited)


def test_a_job_that_is_being_deleted_needs_no_spec_to_count_as_read():
    found, ends = read_specs(), job("a", generation=2, ends=True)
    found.parse(job("a"))
    assert found.status(ends).incarnation == 1
    assert found.has_read(ends)

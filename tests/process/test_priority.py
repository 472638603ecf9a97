"""A job's priority is that of the PriorityClass it names, if it is there and jobs may name it."""

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.read.priority import Priority, priority_of
from elastic_operator.settings import Settings

CRITICAL = "system-node-critical"
VALUES = {CRITICAL: 2_000_001_000, "high": 10, "usual": 5, "low": -10}


def store_of(**values):
    store: Store[objects.PriorityClass] = Store()
    for version, (name, value) in enumerate(values.items(), start=1):
        meta = {"name": name, "uid": name, "resourceVersion": str(version)}
        body = {"metadata": meta, "value": value, "globalDefault": name == "usual"}
        store.observe(objects.decode(body, objects.PriorityClass))
    return store


def priority(name, *allowed, **values):
    return priority_of(name, store_of(**(values or VALUES)), Settings(job_priority_class_names=allowed))


@pytest.mark.parametrize(
    ("name", "allowed", "value"),
    [
        ("high", (), 10),
        ("low", (), -10),
        ("high", ("high", "low"), 10),
        (CRITICAL, ("high", CRITICAL), VALUES[CRITICAL]),
        ("", (), 5),
        ("", ("high",), 5),
    ],
)
def test_a_class_that_jobs_may_name_gives_its_value_and_none_gives_the_clusters_default(name, allowed, value):
    assert priority(name, *allowed) == Priority(value)


def test_without_any_class_a_job_has_priority_0():
    assert priority("", high=10) == Priority(0)


@pytest.mark.parametrize(
    ("name", "allowed", "instead"),
    [
        (CRITICAL, (), "Write one whose name does not begin with 'system-', or leave the field out."),
        ("system-nobody-made-it", (), "Write one whose name does not begin with 'system-', or leave the field out."),
        ("usual", ("high", "low"), "Write one of high, low, or leave the field out."),
        (CRITICAL, ("high",), "Write one of high, or leave the field out."),
    ],
)
def test_a_class_that_jobs_may_not_name_counts_as_0_and_is_told_with_what_to_write_instead(name, allowed, instead):
    value, (reason, told) = priority(name, *allowed)
    assert (value, reason) == (0, "PriorityClassNotAllowed")
    assert told.startswith(f"spec.priorityClassName is {name!r}, which jobs may not name")
    assert "jobPriorityClassNames" in told
    assert told.endswith(instead)


@pytest.mark.parametrize("allowed", [(), ("gone",)])
def test_a_class_that_is_not_there_counts_as_0_and_is_told(allowed):
    value, (reason, told) = priority("gone", *allowed)
    assert (value, reason) == (0, "NoSuchPriorityClass")
    assert told.startswith("spec.priorityClassName is 'gone', and there is no such PriorityClass.")

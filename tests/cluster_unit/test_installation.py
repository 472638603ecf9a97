"""Of the operators of two namespaces the one decides that the cluster's priority classes name."""

from __future__ import annotations

import asyncio

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.installation import Installation
from elastic_operator.cluster.store import Store

HERE, THERE = "elastic-system", "elsewhere"


def priority_class(name="elastic-pytorch-worker", *, of="", created="2026-01-01T00:00:00Z", rv=1):
    annotations = {objects.ANNOTATION_OPERATOR_NAMESPACE: of, "other": "x"} if of else {"other": "x"}
    meta = {"name": name, "uid": name, "resourceVersion": str(rv), "creationTimestamp": created}
    return objects.decode({"metadata": {**meta, "annotations": annotations}, "value": 0}, objects.PriorityClass)


def store_of(*classes):
    store: Store[objects.PriorityClass] = Store()
    for each in classes:
        store.observe(each)
    return store


@pytest.mark.parametrize(
    "classes",
    [(), (priority_class(),), (priority_class(of=HERE), priority_class("elastic-pytorch-master", of=HERE))],
    ids=["none", "unmarked", "ours"],
)
def test_an_operator_decides_unless_a_class_names_another_namespace(classes):
    assert Installation(HERE, store_of(*classes)).elsewhere() == ""


def test_an_operator_that_stands_by_names_both_namespaces_and_the_remedy():
    classes = store_of(priority_class("b", of=THERE), priority_class("a", of=THERE), priority_class("system"))
    told = Installation(HERE, classes).elsewhere()
    assert f"PriorityClass a belongs to the operator in namespace {THERE!r}" in told
    assert f"in namespace {HERE!r}, stands by" in told
    assert told.endswith(f"priorityclass a b elastic-pytorch.dev/operator-namespace={HERE}")


def test_of_classes_that_disagree_the_oldest_counts_for_both():
    younger = priority_class("a", of=THERE, created="2026-01-02T00:00:00Z")
    classes = store_of(younger, priority_class("b", of=HERE))
    assert Installation(HERE, classes).elsewhere() == ""
    assert "PriorityClass b belongs to" in Installation(THERE, classes).elsewhere()


async def test_who_waits_hears_of_each_change():
    classes = store_of(priority_class(of=HERE))
    ours, theirs = Installation(HERE, classes), Installation(THERE, classes)
    waiting = [asyncio.create_task(ours.wait_until(ours=False)), asyncio.create_task(theirs.wait_until(ours=True))]
    classes.observe(priority_class("system", rv=2))
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    classes.observe(priority_class(of=THERE, rv=3))
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    classes.observe_deleted("elastic-pytorch-worker")
    async with asyncio.timeout(5):
        await ours.wait_until(ours=True)

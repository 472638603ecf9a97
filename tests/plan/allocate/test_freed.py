"""The state of an allocation is freed when nobody uses it any more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from elastic_operator.plan.allocation.allocate import Allocator
from tests.plan.allocate.world import make_inputs, make_job, make_node


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def allocated(allocator: Allocator) -> weakref.ref[object]:
    """The board of an allocation in which a job grows and another one is preempted."""
    jobs = [make_job("low", 1, 3, priority=-1, on="n1 n1 n1"), make_job("high", 3)]
    allocation = allocator.allocate(make_inputs([make_node("n1", 4)], jobs))
    assert {uid: grant.assignment.replicas for uid, grant in allocation.items()} == {"low": 1, "high": 3}
    return weakref.ref(allocation._state.board)


def test_a_state_is_freed_when_nodes_have_changed_without_the_garbage_collector() -> None:
    allocator = Allocator()
    former = allocated(allocator)
    assert former() is not None
    allocator.allocate(make_inputs([make_node("n1", 4), make_node("n2", 4)], []))
    assert former() is None


def test_a_state_is_freed_with_its_allocator_without_the_garbage_collector() -> None:
    former = allocated(Allocator())
    assert former() is None

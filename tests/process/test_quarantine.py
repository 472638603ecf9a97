"""How long an object at which the operator raises is left out, and how those are found that make many raise."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from types import SimpleNamespace

import pytest

from elastic_operator import quarantine
from elastic_operator.memory import DirtySet
from elastic_operator.plan.facts.blame import MAX_BLAME_CALLS, culprits
from elastic_operator.plan.facts.job import FaultStage
from elastic_operator.quarantine import (
    FIRST_ALLOCATION_SECONDS,
    KEPT_SECONDS,
    MAX_QUARANTINE_SECONDS,
    NO_PREEMPTION_SECONDS,
    Quarantine,
)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(passed=0.0)
    monkeypatch.setattr(quarantine, "time", SimpleNamespace(monotonic=lambda: now.passed))
    return now


def raised(found: Quarantine, times: int, clock: SimpleNamespace, **more: FaultStage) -> list[float]:
    """How long the object is left out each time, where it raises at each try."""
    waits = []
    for _ in range(times):
        found.quarantine("job", "uid", "a/b", KeyError("claimName"), version=1, **more)
        waits.append(found.next_end_monotonic() - clock.passed)
        clock.passed = found.next_end_monotonic()
    return waits


def test_an_object_that_raises_again_and_again_is_tried_after_ever_longer_waits(clock):
    waits = raised(Quarantine(), 13, clock)
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == MAX_QUARANTINE_SECONDS
    assert raised(Quarantine(), 2, clock, stage=FaultStage.ALLOCATION) == [
        FIRST_ALLOCATION_SECONDS,
        2 * FIRST_ALLOCATION_SECONDS,
    ]


def test_the_shortest_wait_comes_first_again_after_a_success_a_long_quiet_or_an_edit(clock):
    found = Quarantine()
    raised(found, 5, clock)
    found.note_success("uid")
    assert raised(found, 1, clock) == [1]
    raised(found, 5, clock)
    clock.passed += KEPT_SECONDS + 1
    assert raised(found, 1, clock) == [1]
    found.quarantine("job", "uid", "a/b", KeyError(), version=2)
    assert found.next_end_monotonic() - clock.passed == 1


def test_only_an_error_at_what_tells_of_the_first_one_silences_an_object():
    found = Quarantine()
    found.quarantine("job", "uid", "a/b", KeyError(), version=1)
    of_a_plan_under_way = found.quarantine("job", "uid", "a/b", KeyError(), version=1, stage=FaultStage.GRANT)
    assert not found.may_preempt("uid", 1)
    assert found.begin_status("uid", 1)
    assert found.quarantine("job", "uid", "a/b", KeyError(), version=1, stage=FaultStage.GRANT) is of_a_plan_under_way
    assert not found.begin_status("uid", 1)


def test_an_edit_has_it_tried_again_at_once():
    found = Quarantine()
    found.quarantine("job", "uid", "a/b", KeyError("claimName"), version=1)
    assert "KeyError: 'claimName'" in found.fault("uid", 1).message
    assert found.fault("uid", 2) is None


def test_a_job_that_is_edited_over_and_over_takes_nothing_from_others(clock):
    found, may_preempt = Quarantine(), []
    for version in range(1, 6):
        may_preempt.append(found.may_preempt("uid", version))
        found.quarantine("job", "uid", "a/b", KeyError(), version=version, stage=FaultStage.GRANT)
    assert may_preempt == [True, True, True, False, False]
    clock.passed += MAX_QUARANTINE_SECONDS
    assert found.may_preempt("uid", 6)


def test_what_an_error_of_the_allocation_says_is_for_the_log_alone(caplog):
    fault = Quarantine().quarantine("job", "uid", "a/b", KeyError("other-team/job"), stage=FaultStage.ALLOCATION)
    assert "other-team" not in fault.message
    assert "other-team" in caplog.text


def test_the_revision_changes_when_an_object_is_quarantined_and_when_its_next_try_is_due(clock):
    found = Quarantine()
    states = [found.revision()]
    found.quarantine("node", "uid", "n1", KeyError())
    states.append(found.revision())
    clock.passed = 1.5
    states.append(found.revision())
    assert len(set(states)) == 3
    assert found.next_end_monotonic() == 1.0
    found.note_ends()
    assert found.next_end_monotonic() == inf


def test_a_pass_is_due_as_soon_as_an_object_may_take_from_others_again(clock):
    found = Quarantine()
    found.quarantine("job", "uid", "j", KeyError(), stage=FaultStage.GRANT)
    clock.passed = found.next_end_monotonic()
    assert clock.passed == quarantine.FIRST_FAULT_SECONDS
    found.note_ends()
    assert not found.may_preempt("uid", None)
    clock.passed = found.next_end_monotonic()
    assert found.may_preempt("uid", None)
    found.note_ends()
    assert found.next_end_monotonic() == inf


def test_a_job_is_marked_at_an_error_at_the_end_of_each_wait_and_at_a_success(clock):
    dirty_jobs = DirtySet[str | tuple[str, str]]()
    dirty_jobs.take()
    found, marked = Quarantine(dirty_jobs=dirty_jobs), []
    found.quarantine("job", "uid", "a/b", KeyError(), stage=FaultStage.GRANT)
    for seconds in (0, 0.5, 0.5, 1, NO_PREEMPTION_SECONDS - 1.5, 1, KEPT_SECONDS / 2):
        clock.passed += seconds
        found.note_ends()
        marked.append(dirty_jobs.take())
    assert marked == [{"uid"}, set(), {"uid"}, set(), set(), {"uid"}, set()]
    found.note_success("uid")
    assert dirty_jobs.take() == {"uid"}
    found.note_success("uid")
    assert dirty_jobs.take() == set()


def refuse(bad: set[int], *, together: int = 1):
    def work(some: Sequence[int]) -> None:
        if len(bad & set(some)) >= together:
            raise ValueError("made up")

    return work


@pytest.mark.parametrize("bad", [set(), {0}, {99}, {3, 4, 50}, set(range(100))], ids=len)
def test_all_that_raise_by_themselves_are_found(bad):
    assert culprits(range(100), refuse(bad)) == sorted(bad)


def test_the_search_ends_where_nearly_all_raise_and_blames_groups_then():
    calls, work = 0, refuse(set(range(1, 4096)))

    def counted(some: Sequence[int]) -> None:
        nonlocal calls
        calls += 1
        work(some)

    found = culprits(range(4096), counted)
    assert calls <= MAX_BLAME_CALLS + 2
    assert set(range(1, 4096)) <= set(found)


def test_a_few_among_thousands_are_told_apart():
    bad = {7, 8, 500, 1500, 1501, 1502, 2999, 4000}
    assert culprits(range(4096), refuse(bad)) == sorted(bad)


def test_no_job_is_blamed_for_an_error_without_jobs_or_of_several_together():
    assert culprits(range(100), refuse(set(), together=0)) == []
    assert culprits(range(100), refuse({3, 70}, together=2)) == []

"""What a job is told that asks is what it gets, in the planner's words, and without names of others' jobs (160)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.forecast.answer import WOULD_NOT_LAST, Answer, answer, answer_steps, with_job
from elastic_operator.plan.lookahead import LookaheadAllocator
from tests.plan.allocate.world import make_inputs, make_job, make_node, make_team
from tests.plan.allocate.worlds import SHAPES, shared_inputs, sizes


def ask(inputs: AllocationInputs, job, ends=None) -> Answer:
    """The answer, with all its steps."""
    steps = answer_steps(inputs, job, ends or {})
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@given(shared_inputs(SHAPES), st.sampled_from("abcd"), sizes(), SHAPES, st.integers(0, 2))
def test_the_answer_is_what_the_job_gets_once_it_is_resumed(inputs, namespace, allowed, shape, priority):
    job = make_job("asks", sizes=allowed, shape=shape, team=namespace, priority=priority)
    told = ask(inputs, job)
    real = LookaheadAllocator()
    real.allocate(inputs)  # an allocator that has decided before, as the planner's has
    got = real.allocate(with_job(inputs, job))["asks"]
    assert (told.replicas, told.reason.code) == (got.assignment.replicas, got.size_reason.code)
    assert told.reason.message == (WOULD_NOT_LAST if got.size_reason.code == "WouldNotLast" else got.message)
    assert told.fits is (got.assignment.replicas >= allowed[0])
    assert (told.position is None) is told.fits or not shape.gpus


@given(shared_inputs(SHAPES), st.sampled_from("abcd"), sizes())
def test_no_job_of_anybody_is_named(inputs, namespace, allowed):
    names = {job.uid: f"private-{job.uid}" for job in inputs.jobs}
    jobs = tuple(replace(job, name=names[job.uid]) for job in inputs.jobs)
    told = ask(replace(inputs, jobs=jobs), make_job("asks", sizes=allowed, team=namespace))
    assert "private-" not in f"{told.reason.message} {told.lenders}"


@given(shared_inputs(SHAPES), st.sampled_from("abcd"), sizes())
def test_lenders_have_idle_guarantees_and_lend_no_more_than_is_borrowed(inputs, namespace, allowed):
    job = make_job("asks", sizes=allowed, team=namespace)
    told = answer(job, LookaheadAllocator().allocate(with_job(inputs, job)))
    assert 0 <= told.borrowed <= told.gpus
    guaranteed = {team.name: team.quotas["default"].guaranteed for team in inputs.teams.listed}
    for name, gpus in told.lenders:
        assert name != namespace
        assert 0 < gpus <= min(told.borrowed, guaranteed[name])


NODE = make_node("n1", 8)


def test_what_nobody_is_guaranteed_is_borrowed_of_nobody():
    teams = [make_team("red", 2), make_team("blue", 4)]
    two = ask(make_inputs([NODE], [], teams=teams), make_job("asks", 4, team="red"))
    assert (two.borrowed, two.lenders) == (2, ())
    four = ask(make_inputs([NODE], [], teams=teams), make_job("asks", 6, team="red"))
    assert (four.borrowed, four.lenders) == (4, (("blue", 2),))


def test_what_the_owner_uses_is_not_lent_and_what_it_does_not_lend_is_not_either():
    teams = [make_team("red", 0), make_team("blue", 4), make_team("gold", 4, lend=1)]
    used = make_job("used", 3, on="n1 n1 n1", team="blue")
    told = ask(make_inputs([NODE], [used], teams=teams), make_job("asks", 2, team="red"))
    assert (told.fits, told.borrowed, told.lenders) == (True, 2, (("blue", 1), ("gold", 1)))


def test_what_would_be_taken_back_from_a_borrower_is_counted():
    teams = [make_team("red", 4), make_team("blue", 4)]
    borrower = make_job("borrower", 1, 8, on="n1 n1 n1 n1 n1 n1 n1 n1", team="blue")
    told = ask(make_inputs([NODE], [borrower], teams=teams), make_job("asks", 3, team="red"))
    assert (told.fits, told.reclaimed, told.borrowed, told.lenders) == (True, 3, 0, ())


def test_a_job_that_would_wait_is_told_its_place_and_when_it_starts():
    jobs = [make_job("runs", 8, on="n1 n1 n1 n1 n1 n1 n1 n1"), make_job("before", 6, age=9)]
    told = ask(make_inputs([NODE], jobs), make_job("asks", 4), ends={"runs": 1500.0})
    assert (told.fits, told.position, told.starts_at, told.confidence) == (False, 2, None, None)
    told = ask(make_inputs([NODE], jobs), make_job("asks", 2), ends={"runs": 1500.0})
    assert (told.fits, told.position, told.starts_at, told.confidence) == (False, 2, 1500.0, 1.0)

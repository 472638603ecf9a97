"""The whole benchmark of crowds, with few jobs: all that is started is started by both, and everything is told."""

from __future__ import annotations

import pytest

from benchmarks.scale.__main__ import run
from benchmarks.scale.churned import Kind
from benchmarks.scale.scenario import Scenario
from devcluster.progress import Progress

pytestmark = [pytest.mark.cluster, pytest.mark.extended, pytest.mark.timeout(900)]
SMALL = Scenario(jobs=8, size=3, tries=2)


@pytest.fixture(scope="module")
def runs():
    return run(SMALL, name="benchscale", replicas=2, keep=False, progress=Progress(quiet=True), minutes=0.5)


@pytest.fixture(scope="module")
def figures(runs):
    return runs[0]


def test_each_crowd_is_created_and_ready_in_full(figures):
    counted = [(len(crowd.fill.curve.created), len(crowd.fill.curve.ready)) for crowd in figures.crowds]
    assert counted == [(jobs * SMALL.size, jobs * SMALL.size) for jobs in SMALL.crowds]
    assert [len(crowd.lost) for crowd in figures.crowds] == [SMALL.tries] * len(SMALL.crowds)


def test_every_ready_pod_is_counted_by_its_jobs_status(figures):
    assert [len(crowd.fill.lags) for crowd in figures.crowds] == [jobs * SMALL.size for jobs in SMALL.crowds]


def test_a_start_costs_few_requests(figures):
    """A pod, and of each job a Service, an EndpointSlice, an event and few statuses."""
    for crowd in figures.crowds:
        assert 1.0 < crowd.fill.requests_per_pod < 4.0
        assert 1.0 <= crowd.fill.statuses_per_job < 5.0


def test_the_plain_client_writes_as_many_pods(figures):
    pods = SMALL.jobs * SMALL.size
    for made in (figures.same_objects, figures.pods_only):
        assert (len(made.created), len(made.ready)) == (pods, pods)


def test_each_change_is_answered_once_by_the_operator_and_by_the_bare_client(figures):
    for beside in (figures.lost, figures.freed, figures.scaled):
        for answers in (beside.ours, beside.bare):
            assert len({each.created.name for each in answers}) == len(answers) == SMALL.tries


def test_every_figure_of_the_last_line_was_measured(figures):
    told = figures.summary()
    fills = ("create_ratio", "running_ratio", "create_ratio_pods_only", "running_ratio_pods_only")
    assert all(told["ratios"][name] > 0 for name in fills), told
    # Not `from_fact`: on a busy machine a change is answered before its own request has ended.
    reactions = [
        each for beside in (figures.lost, figures.freed, figures.scaled) for each in (*beside.ours, *beside.bare)
    ]
    assert all(each.from_request > 0 for each in reactions), told
    assert min(figures.killed_s, figures.stopped_s, figures.start_s) > 0


def test_all_that_must_hold_did(runs):
    assert runs[2] == []


def test_every_job_that_comes_starts_and_every_end_is_told(runs):
    came = runs[1]
    assert came.starved == 0
    assert all(each.answered for each in came.changes)
    assert {each.kind for each in came.changes} == set(Kind)
    assert came.summary()["requests_per_change"] > 1.0

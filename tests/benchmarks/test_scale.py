"""Crowds of jobs: what the figures of `make bench-scale` are made of."""

from __future__ import annotations

import json

import pytest

from benchmarks.live.audit import Write
from benchmarks.live.errors import BenchError
from benchmarks.react.latencies import CREATE, DELETE, POD_READY, Reaction
from benchmarks.scale import plot, report
from benchmarks.scale.fill import CREATE_JOB, Curve, Fill, curve
from benchmarks.scale.plain import _as_sent, of_nobody
from benchmarks.scale.report import Crowd, Figures
from benchmarks.scale.scenario import SHARES, Scenario
from benchmarks.scale.single import Beside, pool_of


def write(what, name, done, *, took=0.0):
    return Write(what, name, "operator", received=done - took, done=done)


def test_a_curve_begins_with_the_arrival_of_the_first_job_and_counts_each_ready_pod_once():
    writes = [
        write(CREATE_JOB, "a", 10.5, took=0.5),
        write(CREATE, "a-master-0", 12.0),
        write(CREATE, "b-master-0", 12.5),
        write(CREATE, "a-worker-0", 13.0),
        write(POD_READY, "a-worker-0", 14.0),
        write(POD_READY, "a-worker-0", 15.0),
        write(POD_READY, "a-master-0", 16.0),
    ]
    assert curve(writes, ["a"]) == Curve(created=[2.0, 3.0], ready=[4.0, 6.0])


def test_a_curve_leaves_out_the_round_before():
    before = [write(CREATE, "a-master-0", 1.0), write(POD_READY, "a-master-0", 2.0)]
    assert curve([*before, write(CREATE, "a-master-0", 11.0)], ["a"], since=10.0) == Curve([0.0], [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"jobs": 10}, "jobs=10: write a multiple of 4"),
        ({"size": 1}, "size=1: write at least 2"),
        ({"jobs": 40, "tries": 11}, "tries=11: write 1 to 10"),
    ],
)
def test_a_scenario_that_cannot_be_measured_is_refused(wrong, message):
    with pytest.raises(BenchError, match=message):
        Scenario(**wrong)


def test_the_largest_crowd_has_room_and_no_two_crowds_share_a_name():
    plan = Scenario(jobs=40, size=4, tries=5)
    assert plan.crowds == [10, 20, 40, 80]
    assert plan.nodes * 8 >= 80 * 4
    assert len({name for jobs in plan.crowds for name in plan.names(jobs)}) == sum(plan.crowds)


@pytest.mark.parametrize("tries", [1, 5, 20])
def test_full_nodes_have_a_foreign_pod_for_each_try_and_jobs_that_need_more_than_becomes_free(tries):
    full = pool_of(Scenario(jobs=4 * tries, tries=tries))
    held = len(full.full_jobs) * full.size
    assert len(full.foreign_pods) >= tries
    assert full.full_nodes * 8 == held + len(full.foreign_pods)
    assert held >= tries


def test_an_object_is_sent_again_as_its_writer_sent_it():
    stored = {
        "metadata": {"name": "x", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"nodeName": "n1", "priority": 5, "priorityClassName": "c", "containers": []},
        "status": {"phase": "Running"},
    }
    sent = _as_sent("pods", stored)
    assert sent == {
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {"priorityClassName": "c", "containers": []},
    }
    assert of_nobody(sent) == {"metadata": {"name": "x"}, "spec": {"containers": []}}
    assert stored["spec"]["nodeName"] == "n1"


def crowd(jobs, *, exponent, change):
    pods = jobs * 4
    moments = [pods**exponent * number / pods for number in range(1, pods + 1)]
    filled = Fill(
        jobs=jobs,
        curve=Curve(moments, moments),
        lags=[0.1, 0.2],
        requests=pods * 2,
        statuses=jobs * 3,
        operator_cpu_seconds=1.0,
        resident_megabytes=100.0,
    )
    return Crowd(filled, [lost(0.02)], [(0.001 * pods**change, 1.0)])


def lost(seconds):
    return Reaction(write(DELETE, "a-worker-0", 1.0), write(CREATE, "a-worker-1", 1.0 + seconds))


def figures(*, exponent=1.2, change=0.5):
    plan = Scenario(jobs=40, tries=5)
    crowds = [crowd(jobs, exponent=exponent, change=change) for jobs in plan.crowds]
    half = Curve([at / 2 for at in crowds[2].fill.curve.created], [at / 2 for at in crowds[2].fill.curve.ready])
    return Figures(
        crowds=crowds,
        main=40,
        same_objects=half,
        pods_only=half,
        lost=Beside([lost(0.02)], [lost(0.01)]),
        freed=Beside([lost(0.03), lost(0.06), lost(0.09)], [lost(0.02)]),
        scaled=Beside([lost(0.05)], [lost(0.02)]),
        killed_s=3.0,
        stopped_s=1.0,
        start_s=2.0,
        load=0.5,
    )


def test_ratios_and_exponents_are_those_of_the_curves():
    assert figures().ratios() == pytest.approx(
        {
            "create_ratio": 0.5,
            "running_ratio": 0.5,
            "create_ratio_pods_only": 0.5,
            "running_ratio_pods_only": 0.5,
            "react_ratio": 2.0,
            "react_ratio_freed": 3.0,
            "react_ratio_scale": 2.5,
            "fill_exponent": 1.2,
            "change_exponent": 0.5,
        }
    )


def test_the_last_line_has_what_was_measured():
    told = json.loads(report.line(figures()))
    assert (told["jobs"], told["pods"], told["requests_per_pod"], told["status_writes_per_job"]) == (40, 160, 2.0, 3.0)
    assert (told["takeover_s"], told["takeover_after_stop_s"], told["start_s_320_pods"]) == (3.0, 1.0, 2.0)


def test_the_page_has_a_row_for_each_crowd_and_the_picture_two_curves_for_each_writer():
    told = report.markdown(figures())
    assert [line.split(" | ")[0] for line in told.splitlines()[2:6]] == ["| 10", "| 20", "| 40", "| 80"]
    assert plot.svg_of(figures()).count("<path") == 1 + 2 * 3
    assert len(SHARES) == 4

"""What became of a request for GPUs is read rightly from an audit log whose moments are known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.live.audit import Write
from benchmarks.live.errors import BenchError
from benchmarks.live.place import OPERATOR
from benchmarks.reclaim import report
from benchmarks.reclaim.owner import Owner
from benchmarks.reclaim.report import Figures
from benchmarks.reclaim.scenario import OWNER, Scenario
from benchmarks.reclaim.stages import (
    BIND,
    CREATE,
    DELETE,
    KUBELETS,
    POD_STATUS,
    SCHEDULER,
    Stage,
    ratio,
    request,
)
from benchmarks.reclaim.victims import evicted_for_others
from demo.reclaims import Reclaim, TakenBack
from demo.stage import Way
from elastic_api.status import SizeReason
from elastic_operator.plan.facts.decisions import Assignment, Grant
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.resize import why_smaller

ADMIN = "admin"


def write(what, name, done, user):
    return Write(what, name, user, received=done, done=done)


def reclaim(pod, *, victims, start=100.0, step=0.1):
    """The writes of a reclaim for one pod, one every `step` seconds."""
    told = [(DELETE, name, user) for name in victims for user in (OPERATOR, KUBELETS)]
    steps = [(CREATE, pod, ADMIN), (POD_STATUS, pod, SCHEDULER), (POD_STATUS, pod, OPERATOR), *told]
    whole = [*steps, (BIND, pod, SCHEDULER)]
    return [write(what, name, start + number * step, user) for number, (what, name, user) in enumerate(whole)]


def made(writes, *, pods=("x",), until=float("inf"), gpus=1):
    asks = frozenset(pods).__contains__
    return request(writes, created=100.0, until=until, asks=asks, pods=len(pods), gpus=gpus)


def figures(*, large, gang, by_hand=None):
    timed = [(0.002, 2.0), (0.004, 1.0), (0.003, 1.0)]
    return Figures(
        large=large,
        small={1: large, 2: large},
        gang=gang,
        by_hand=gang if by_hand is None else by_hand,
        allocations=timed,
        unchanged=timed,
        resident_megabytes=150.0,
        highest_megabytes=160.0,
        load=1.0,
    )


def test_each_step_takes_as_long_as_its_write_came_after_that_of_the_step_before():
    found = made(reclaim("x", victims=["job-1-worker-2"]))
    assert found.parts() == pytest.approx(dict.fromkeys(Stage, 0.1))
    assert found.seconds == pytest.approx(0.5)
    assert (found.bound, found.evicted) == (1, 1)


def test_victims_are_timed_from_the_first_that_is_told_to_go_to_the_last_that_is_gone():
    found = made(reclaim("x", victims=["job-1-worker-2", "job-2-worker-2"]))
    assert found.parts()[Stage.DELETED] == pytest.approx(0.1)
    assert found.parts()[Stage.GONE] == pytest.approx(0.3)
    assert found.evicted == 2


def test_a_request_that_nobody_is_nominated_for_has_no_such_step():
    found = made([write(CREATE, "x", 100.0, ADMIN), write(BIND, "x", 100.1, SCHEDULER)])
    assert set(found.parts()) == {Stage.BOUND}
    assert found.evicted == 0


def test_a_request_is_not_over_before_its_last_pod_has_a_node():
    writes = [write(BIND, "x", 100.2, SCHEDULER)]
    assert made(writes, pods=["x", "y"], gpus=2).seconds is None
    assert made([*writes, write(BIND, "y", 100.4, SCHEDULER)], pods=["x", "y"], gpus=2).seconds == pytest.approx(0.4)


def test_a_pod_counts_as_evicted_whoever_told_it_to_go_and_once_however_often():
    writes = [
        write(DELETE, "job-1-worker-2", 100.1 + number, user) for number, user in enumerate((OPERATOR, SCHEDULER))
    ]
    assert made(writes).evicted == 1


def test_a_pod_that_came_back_and_went_again_counts_twice():
    again = [
        write(DELETE, "job-1-worker-2", 100.1, OPERATOR),
        write(CREATE, "job-1-worker-2", 100.2, OPERATOR),
        write(DELETE, "job-1-worker-2", 100.3, OPERATOR),
    ]
    assert made(again).evicted == 2


def test_neither_what_was_before_nor_what_the_next_request_costs_is_counted():
    writes = [*reclaim("v", victims=["a-worker-0"], start=90), *reclaim("x", victims=["b-worker-0"])]
    later = reclaim("y", victims=["c-worker-0"], start=110)
    assert made([*writes, *later], until=110.0).evicted == 1


def test_the_pods_that_asked_are_no_victims_when_they_go():
    assert made([write(DELETE, "x", 100.1, ADMIN), write(DELETE, "x", 100.2, KUBELETS)]).evicted == 0


def test_the_ratio_is_of_all_requests_together():
    one, two = made(reclaim("x", victims=["a-worker-0"])), made(reclaim("x", victims=["a-worker-0", "b-worker-0"]))
    assert ratio([one, two]) == 1.5


def test_the_last_line_tells_the_ratio_that_is_furthest_from_one_and_null_for_what_never_came(capsys):
    good, bad = made(reclaim("x", victims=["a-worker-0"])), made([], gpus=8)
    report.show(figures(large=[good], gang=bad), None, Console(width=140))
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {
        "reclaim_p50_s": 0.5,
        "reclaim_max_s": 0.5,
        "small_p50_s": 0.5,
        "evicted_ratio": 0.0,
        "evicted_besides": 0,
        "gang_s": None,
        "gang_over_plain": None,
        "allocate_p50_ms": 3.0,
        "idle_pass_p50_ms": 3.0,
        "rss_mb": 150.0,
    }


def test_what_an_owner_sees_is_told_for_each_way_to_train(capsys):
    fast = Reclaim("team-b/one", "n1", 1, ("team-a/job-worker-1",), 1, 0.1, 0.4, 0.5, 1.0)
    slow = replace(fast, pod="team-b/two", running_after=3.0)
    seen = Owner({way: TakenBack((fast, slow), ("a", "b"), 2, 2) for way in Way})
    good = made(reclaim("x", victims=["a-worker-0"]))
    report.show(figures(large=[good], gang=good), seen, Console(width=140))
    *table, last = capsys.readouterr().out.splitlines()
    told = json.loads(last)
    for way in ("torchrun", "elastic", "library"):
        assert (told[f"owner_{way}_p50_s"], told[f"owner_{way}_p95_s"]) == (1.0, 3.0)
    (row,) = [line for line in table if "Library" in line]
    cells = [cell.strip() for cell in row.strip(" │").split("│")]
    assert cells == ["Library", "0.10 s", "0.40 s", "0.50 s", "1.00 s", "3.00 s", "2", "2 / 2"]


def test_pods_that_go_so_that_jobs_of_their_own_team_have_their_minimum_are_not_the_gangs():
    def change(reason, message, seconds="10"):
        return {"time": f"1970-01-01T00:00:{seconds}Z", "reason": reason, "from": 4, "to": 2, "message": message}

    def message(*preemptors, release=2, reclaimed=True):
        assignment = Assignment((), tuple(f"pod-{number}" for number in range(release)), ())
        preemptors = {name: name for name in preemptors}
        why = Reason(SizeReason.INSUFFICIENT_NODES, "")
        return why_smaller(Grant(assignment, 2, why, preemptors=preemptors, reclaimed=reclaimed))

    gangs = change(*message("owner/gang-a", "team-1/job-2"))
    others = change(*message("team-1/job-3", "team-1/job-4", release=3, reclaimed=False))
    before = change(*message("team-1/job-5"), seconds="02")
    jobs = [
        {"status": {"history": [gangs, change("ScaledUp", "Grows."), before]}},
        {"status": {"history": [others]}},
        {},
    ]
    assert evicted_for_others(jobs, since=9.5, owner="owner") == 3
    assert evicted_for_others(jobs, since=1.0, owner="team-1") == 0


def test_the_gang_is_compared_with_the_same_job_for_which_a_plain_client_made_room():
    gang, by_hand = made(reclaim("x", victims=["a-worker-0"])), made(reclaim("x", victims=["a-worker-0"], step=0.05))
    assert figures(large=[gang], gang=gang, by_hand=by_hand).gang_over_plain == pytest.approx(2.0)


def test_the_jobs_fill_the_cluster_and_hold_more_than_twice_what_their_teams_are_guaranteed():
    plan = Scenario()
    held = plan.jobs * plan.size
    borrowers = {name: gpus for name, gpus in plan.guarantees.items() if name != OWNER}
    assert held == plan.gpus == 4000
    assert held // 2 == plan.guarantees[OWNER] == plan.gang * 8
    assert sum(borrowers.values()) == 1800
    assert {name for name, _ in plan.job_names} == borrowers.keys()
    assert {plan.job(name)["spec"]["minReplicas"] for _, name in plan.job_names} == {1, 2}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"jobs": 999}, "jobs=999"),
        ({"teams": 3}, "teams=3"),
        ({"gang": 251}, "gang=251"),
        ({"tries": 2001}, "tries=2001"),
    ],
)
def test_a_scenario_that_cannot_be_laid_out_says_which_number_to_change(wrong, field):
    with pytest.raises(BenchError, match=field):
        Scenario(**wrong)

"""The simulated clusters that policies are compared on: what changes cost, what each policy does, and who wins."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks.policy import figures, plot, report
from benchmarks.policy.baselines import FirstCome, Static, WholeJobs
from benchmarks.policy.figures import OURS, POLICIES, WHOLE_JOBS, Task, make
from benchmarks.policy.model import LEAVE_SECONDS, PAUSES, SAVE_SECONDS, START_SECONDS, Assumptions, Mode, pace
from benchmarks.policy.ours import Ours
from benchmarks.policy.packing import packed
from benchmarks.policy.traces import HOUR, JobTrace, Loss, Outage, PlainTrace, Team, Trace, draw
from benchmarks.policy.training import Pod, Training
from benchmarks.policy.variants import BASE, CONTROL, VARIANTS
from benchmarks.policy.world import World

INTERVAL = BASE.checkpoint_seconds


def make_job(name="job", **fields):
    """Four pods of a GPU each, that scale without loss."""
    defaults = {"team": "a", "arrives": 0.0, "work": 1e6, "wanted": 4, "least": 1, "most": 8, "gpus": 1}
    more = {"priority": 0, "mode": Mode.LIBRARY, "slope": 0.0, "delay": 30}
    return JobTrace(**{"name": name, **defaults, **more, **fields})


def make_trace(*jobs, nodes=1, hours=2.0, guaranteed=None, **fields):
    teams = tuple(Team(name, gpus) for name, gpus in (guaranteed or {"a": 4, "b": 4}).items())
    defaults = {"plain": (), "losses": (), "outages": ()}
    return Trace(seed=0, nodes=nodes, horizon=hours * HOUR, load=1.0, teams=teams, jobs=jobs, **{**defaults, **fields})


def make_training(mode, *, pods=4, least=1, assumed=BASE):
    """A job whose pods have trained for 100 s."""
    job = Training(make_job(mode=mode, wanted=pods), assumed, least=least, mode=mode, now=0.0)
    for index in range(pods):
        job.pods[f"pod-{index}"] = Pod(f"pod-{index}", index, 0, 1, ready=0.0)
    job.regroup()
    job.advance(100.0)
    return job


def add_pod(job, *, ready):
    pod = job.pods["new"] = Pod("new", len(job.pods), 0, 1, ready=ready)
    return pod


def after(job, seconds):
    """The same job, later."""
    end = job.at + seconds
    while (time := job.next_event()) < end:
        job.advance(time)
        job.regroup()
    job.advance(end)
    job.regroup()
    return job


def run(trace, policy, assumed=BASE):
    return World(trace, policy, assumed).run()


# -- what a change costs -----------------------------------------------------------------------------------------------


def test_twice_the_gpus_are_less_than_twice_as_fast_where_communication_takes_time():
    assert pace(1, 0.05) == 1.0
    assert 1.0 < pace(8, 0.05) / pace(4, 0.05) < 2.0
    assert pace(8, 0.0) == 8.0


@pytest.mark.parametrize("mode", Mode)
def test_a_group_does_the_work_of_its_gpus(mode):
    assert make_training(mode, least=4).done == pytest.approx(400.0)


@pytest.mark.parametrize(("mode", "undone"), [(Mode.LIBRARY, 0.0), (Mode.ELASTIC, 400.0), (Mode.TORCHRUN, 400.0)])
def test_a_lost_worker_costs_the_work_since_the_last_checkpoint_but_with_the_library(mode, undone):
    job = make_training(mode)
    job.lose([job.pods["pod-3"]])
    assert job.spent.undone["loss"] == undone
    assert after(job, 100.0).done == pytest.approx(400.0 - undone + 3 * (100.0 - PAUSES[mode].loss))


def test_a_lost_pod_stops_a_job_of_fixed_size_until_it_has_another_one():
    job = make_training(Mode.FIXED, least=4)
    job.lose([job.pods["pod-3"]])
    assert not job.group
    assert after(job, 50.0).done == 0.0
    add_pod(job, ready=job.at + START_SECONDS)
    assert after(job, 50.0).done == pytest.approx(4 * (50.0 - START_SECONDS))
    assert job.spent.stopped == pytest.approx(3 * 50.0 + 4 * START_SECONDS)


@pytest.mark.parametrize(("mode", "undone"), [(Mode.LIBRARY, 0.0), (Mode.ELASTIC, 0.0), (Mode.TORCHRUN, 400.0)])
def test_only_under_torchrun_a_planned_change_costs_work(mode, undone):
    shrinks, grows = make_training(mode), make_training(mode)
    shrinks.tell_to_go([shrinks.pods["pod-3"]])
    assert after(shrinks, 60.0).spent.undone["change"] == undone
    assert len(shrinks.group) == 3
    assert "pod-3" not in shrinks.pods
    add_pod(grows, ready=grows.at)
    grows.regroup()
    assert after(grows, 60.0).spent.undone["change"] == undone
    assert len(grows.group) == 5


def test_a_script_in_elastic_mode_that_is_asked_saves_and_trains_until_then():
    job = make_training(Mode.ELASTIC)
    job.tell_to_go([job.pods["pod-3"]])
    assert job.pods["pod-3"].gone == job.at + SAVE_SECONDS + LEAVE_SECONDS
    after(job, SAVE_SECONDS + 1.0)
    assert job.saved == pytest.approx(4 * (100.0 + SAVE_SECONDS))


def test_a_deaf_script_admits_pods_after_a_checkpoint_and_loses_work_when_a_pod_leaves_sooner():
    deaf = Assumptions(listens=False)
    grows, shrinks = make_training(Mode.ELASTIC, assumed=deaf), make_training(Mode.ELASTIC, assumed=deaf)
    add_pod(grows, ready=grows.at)
    grows.regroup()
    assert len(after(grows, INTERVAL - 101.0).group) == 4
    assert len(after(grows, 2.0).group) == 5
    assert grows.spent.lost == pytest.approx(INTERVAL - 100.0 + 5 * PAUSES[Mode.ELASTIC].join, abs=0.1)
    shrinks.tell_to_go([shrinks.pods["pod-3"]])
    assert after(shrinks, 70.0).spent.undone["change"] == pytest.approx(4 * 160.0)


@pytest.mark.parametrize("mode", Mode)
def test_a_job_that_is_stopped_as_a_whole_goes_on_from_its_last_checkpoint(mode):
    job = after(make_training(mode, least=4), INTERVAL)
    job.tell_to_go(job.staying)
    after(job, LEAVE_SECONDS)
    assert not job.pods
    assert job.done == job.saved == pytest.approx(4 * INTERVAL)
    assert job.spent.undone["change"] == pytest.approx(400.0)


# -- traces ------------------------------------------------------------------------------------------------------------


def test_a_seed_always_draws_the_same_day_and_another_one_another():
    assert draw(3, BASE) == draw(3, BASE)
    assert draw(3, BASE).jobs != draw(4, BASE).jobs


@pytest.mark.parametrize("seed", range(6))
def test_no_job_wants_more_than_its_team_is_guaranteed_and_all_guarantees_fit(seed):
    trace = draw(seed, BASE)
    guaranteed = {team.name: team.guaranteed for team in trace.teams}
    assert 2 <= len(trace.teams) <= 20
    assert sum(guaranteed.values()) <= trace.gpus
    assert all(job.wanted * job.gpus <= guaranteed[job.team] for job in trace.jobs)
    assert all(job.least <= job.wanted <= job.most for job in trace.jobs)


@pytest.mark.parametrize("variant", [CONTROL, *(variant.assumed for variant in VARIANTS.values())])
def test_other_assumptions_are_tried_on_the_same_jobs(variant):
    def asked(trace):
        return [(job.name, job.arrives, job.work, job.wanted, job.gpus) for job in trace.jobs]

    assert asked(draw(1, variant)) == asked(draw(1, BASE))
    assert draw(1, variant).losses == draw(1, BASE).losses


def test_of_the_control_no_job_can_change_its_size():
    assert not any(job.is_elastic for job in draw(1, CONTROL).jobs)
    assert sum(job.is_elastic for job in draw(1, BASE).jobs) > len(draw(1, BASE).jobs) / 2


# -- policies ----------------------------------------------------------------------------------------------------------


def test_pods_go_to_the_fullest_nodes():
    assert packed([8, 3, 2], 2, 3) == [2, 1, 0]
    assert packed([3, 3], 2, 3) is None


def test_with_static_sizes_nobody_uses_what_others_leave_idle():
    world = run(make_trace(make_job(), make_job("next", arrives=1.0)), Static())
    assert [len(job.staying) for job in world.jobs.values()] == [4, 0]


@pytest.mark.parametrize("policy", [WholeJobs, FirstCome])
def test_the_others_let_a_team_use_what_is_idle(policy):
    world = run(make_trace(make_job(), make_job("next", arrives=1.0)), policy())
    assert sum(len(job.staying) for job in world.jobs.values()) == 8


def test_whoever_is_entitled_has_the_latest_of_the_borrowers_jobs_stopped_and_it_queues():
    jobs = [make_job(), make_job("borrows", arrives=1.0), make_job("owner", team="b", arrives=600.0)]
    world = run(make_trace(*jobs), WholeJobs())
    assert {name: len(job.staying) for name, job in world.jobs.items()} == {"job": 4, "borrows": 0, "owner": 4}
    assert max(world.watching.waits) == pytest.approx(LEAVE_SECONDS)


def test_a_job_of_lower_priority_is_stopped_first_and_no_more_of_them_than_needed():
    jobs = [
        make_job("low", wanted=2, arrives=0.0),
        make_job("high", wanted=2, arrives=1.0, priority=10),
        make_job("late", wanted=4, arrives=2.0, priority=10),
        make_job("owner", team="b", arrives=600.0, wanted=2),
    ]
    world = run(make_trace(*jobs), WholeJobs())
    assert [name for name, job in world.jobs.items() if not job.staying] == ["low"]


def test_of_those_who_came_first_nobody_gives_back():
    world = run(make_trace(make_job(), make_job("owner", team="b", arrives=600.0)), FirstCome())
    assert [len(job.staying) for job in world.jobs.values()] == [8, 0]
    assert max(world.watching.waits) > HOUR


def test_ours_grows_into_what_is_idle_and_gives_back_as_much_as_the_owner_asks_for():
    owner = make_job("owner", team="b", arrives=600.0, wanted=3, least=3, most=3, mode=Mode.FIXED)
    trace = make_trace(make_job(), owner)
    world = run(trace, Ours(trace))
    assert [len(job.staying) for job in world.jobs.values()] == [5, 3]
    assert world.jobs["job"].spent.undone == {"change": 0.0, "loss": 0.0}
    assert max(world.watching.waits) == pytest.approx(LEAVE_SECONDS)


def test_ours_gives_back_for_a_plain_pod_of_an_entitled_team():
    trace = make_trace(make_job(), plain=(PlainTrace("notebook", "b", 600.0, HOUR),))
    world = run(trace, Ours(trace))
    assert world.plain_seconds == pytest.approx(HOUR)
    assert max(world.watching.waits) == pytest.approx(LEAVE_SECONDS)


@pytest.mark.parametrize("mode", [Mode.LIBRARY, Mode.ELASTIC, Mode.TORCHRUN])
@pytest.mark.parametrize("gpu", [0, 5])
def test_ours_replaces_what_is_lost_the_master_or_a_worker(mode, gpu):
    trace = make_trace(make_job(mode=mode), losses=(Loss(600.0, 0, gpu),))
    job = run(trace, Ours(trace)).jobs["job"]
    assert len(job.staying) == len(job.group) == 8
    assert any(pod.index == 0 for pod in job.group)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_on_a_node_that_is_off_goes_on_elsewhere(policy):
    job = make_job(least=4, most=4, mode=Mode.FIXED)
    trace = make_trace(job, nodes=2, outages=(Outage(600.0, 0, 1e9), Outage(601.0, 1, 3600.0)))
    world = run(trace, POLICIES[policy](trace))
    assert {pod.node for pod in world.jobs["job"].group} == {1}


def test_a_change_that_is_undone_is_a_flap_only_if_nothing_came_from_outside():
    owner = make_job("owner", team="b", arrives=700.0, wanted=4, least=4, most=4, work=4 * 60.0, mode=Mode.FIXED)
    trace = make_trace(make_job(), owner)
    watching = run(trace, Ours(trace)).watching
    assert (watching.undone, watching.flaps) == (1, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_holds_more_than_there_is_or_does_more_than_there_is_to_do(policy, seed):
    trace = draw(seed, BASE, hours=3.0, most_teams=4)
    world = run(trace, POLICIES[policy](trace))
    jobs = [*world.ended, *world.jobs.values()]
    held = sum(job.spent.trained + job.spent.starting + job.spent.stopped for job in jobs) + world.plain_seconds
    assert held <= trace.gpus * trace.horizon
    assert all(job.done <= job.trace.work * (1 + 1e-9) for job in jobs)
    assert all(job.done <= job.spent.trained - sum(job.spent.undone.values()) + 1e-6 for job in jobs)
    for team in world.guaranteed:
        plain = sum(pod.trace.team == team and pod.node is not None for pod in world.plain.values())
        assert world.used[team] == plain + sum(job.held for job in world.jobs.values() if job.trace.team == team)


# -- who wins ----------------------------------------------------------------------------------------------------------


def make_runs(assumed, policies, *, seeds=(1, 2, 3), hours=4.0):
    return [make(Task(policy, seed, assumed, hours, most_teams=6)) for seed in seeds for policy in policies]


def test_where_no_job_can_change_its_size_ours_gets_as_much_done_as_whole_jobs_do():
    runs = make_runs(CONTROL, (WHOLE_JOBS, OURS), seeds=range(1, 6))
    assert figures.ratio(runs, figures.goodput).value == pytest.approx(1.0, abs=report.CONTROL_MARGIN)


def test_with_the_library_ours_gets_more_done_than_any_policy_that_gives_back_what_is_owed():
    runs = make_runs(replace(BASE, modes=(Mode.LIBRARY,)), POLICIES)
    done = {policy: figures.goodput(figures.of(runs, policy)) for policy in POLICIES}
    waits = {policy: figures.wait(0.95)(figures.of(runs, policy)) for policy in POLICIES}
    assert done[OURS] > done[WHOLE_JOBS] > done[Static.name]
    assert waits[OURS] < waits[FirstCome.name]


def test_the_report_has_a_row_for_each_policy_and_a_line_for_programs():
    runs = make_runs(BASE, POLICIES, seeds=(1, 2), hours=1.0)
    control = make_runs(CONTROL, (WHOLE_JOBS, OURS), seeds=(1, 2), hours=1.0)
    told = report.markdown(runs, control, {"library": runs})
    assert all(f"| {policy}" in told for policy in POLICIES)
    line = json.loads(report.line(runs, control, {"library": runs}))
    assert {"goodput_ratio", "lost_ratio", "entitled_wait_p95_s", "flaps", "goodput_ratio_95"} <= line.keys()
    ElementTree.fromstring(plot.svg_of(runs))


def test_an_interval_holds_its_value_and_is_nothing_where_all_seeds_are_alike():
    one = make_runs(BASE, (WHOLE_JOBS,), seeds=(1,), hours=1.0)[0]
    alike = figures.interval([one, one, one], figures.goodput)
    assert alike.low == pytest.approx(alike.value) == pytest.approx(alike.high)
    other = replace(one, useful=one.useful / 2)
    apart = figures.interval([one, other, one], figures.goodput)
    assert apart.low < apart.value < apart.high

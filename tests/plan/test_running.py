"""A job's start and its changes of size, one fact a test."""

from dataclasses import replace

import pytest

from elastic_api.status import Change, PodStatus, SizeReason
from elastic_operator.plan.facts.decisions import Route
from tests.plan.jobs import (
    BOTH,
    START,
    at,
    group,
    make_grant,
    make_job,
    make_pod,
    make_spec,
    make_status,
    names,
    plan,
    reasons,
    started,
)


def test_a_new_job_gets_its_pods_once_its_whole_minimum_has_room():
    job = make_job((), status=make_status(target_replicas=0, replicas=0, start_time=None))
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert planned.creates.incarnation == 1
    assert [(c.role, c.index, c.node) for c in planned.slots] == [
        ("master", 0, "n1"),
        ("worker", 0, "n1"),
    ]
    assert planned.status.target_replicas == 2
    assert planned.status.start_time == at(200)


def test_a_start_whose_room_is_not_free_yet_creates_nothing():
    job = make_job((), status=make_status(target_replicas=0, replicas=0))
    assert plan(job, make_grant(create=["master-0", "worker-0"], ready=False)).slots == ()


def test_a_start_waits_for_the_name_of_a_pod_that_still_terminates():
    old = replace(make_pod("master-0"), incarnation=0, deleting_since=START)
    job = make_job([old], status=make_status(replicas=0))
    assert plan(job, make_grant(create=["master-0", "worker-0"])).slots == ()


def test_a_start_waits_for_a_master_name_that_belongs_to_somebody_else():
    job = make_job((), status=make_status(replicas=0), foreign_names=frozenset({"toy-master-0"}))
    assert plan(job, make_grant(create=["master-0", "worker-0"])).slots == ()


@pytest.mark.parametrize(
    ("granted", "phase", "first"), [(2, "Starting", "0 of 2 pods run."), (0, "Queued", "There is no room.")]
)
def test_what_an_earlier_job_left_behind_is_named_with_the_command_that_removes_it(granted, phase, first):
    names = frozenset({"toy-worker-0", "toy-master-0"})
    status = make_status(replicas=0, target_replicas=granted)
    job = make_job((), status=status, foreign_names=names)
    wanted = ["master-0", "worker-0"] if granted else []
    planned = plan(job, make_grant(create=wanted, limit=SizeReason.INSUFFICIENT_NODES, message="There is no room."))
    assert reasons(planned)["Ready"] == ("False", phase)
    told = planned.status.condition("Ready").message
    assert told.startswith(f"{first} toy-master-0, toy-worker-0 do not belong to this job")
    assert told.endswith("-l 'elastic-pytorch.dev/job-name=toy,elastic-pytorch.dev/job-uid!=job-uid'`.")


def test_of_pods_that_an_earlier_job_left_behind_it_is_told_rather_than_of_its_service():
    names, trouble = frozenset({"toy-master-0"}), "Service toy-master exists"
    job = make_job((), status=make_status(replicas=0), foreign_names=names, write_error=trouble)
    told = plan(job, make_grant(create=["master-0", "worker-0"])).status.condition("Ready").message
    assert told.startswith("toy-master-0 does not belong to this job")


def test_a_job_without_room_is_queued_and_says_why():
    job = make_job((), status=make_status(replicas=0, target_replicas=0))
    planned = plan(job, make_grant(limit=SizeReason.INSUFFICIENT_NODES, message="There is no room."))
    assert reasons(planned)["Ready"] == ("False", "Queued")
    assert reasons(planned)["FullSize"] == ("False", "InsufficientNodes")
    assert planned.status.condition("Ready").message == "There is no room."


def test_a_complete_group_is_running():
    planned = plan(make_job(status=started()), BOTH)
    assert reasons(planned)["Ready"] == ("True", "Running")
    assert reasons(planned)["FullSize"] == ("True", "AtMaximum")
    assert (planned.deletes, planned.slots, planned.write_status_first) == ((), (), False)
    assert planned.status.world_size == 2
    assert planned.route == Route("10.0.0.1", "n1")


def test_settling_again_on_its_own_status_changes_nothing():
    job = make_job(status=started())
    first = plan(job, BOTH)
    second = plan(replace(job, status=first.status), BOTH, now=260)
    assert second.status is first.status, "a leader keeps it once, not twice (191)"
    assert second.events == ()


def test_growth_does_not_wait_for_being_written_down():
    planned = plan(make_job(status=started()), make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert not planned.write_status_first
    assert [c.index for c in planned.slots] == [1]
    assert (planned.status.target_replicas, planned.status.resizes) == (3, 1)
    assert (planned.status.history[0].from_, planned.status.history[0].to) == (2, 3)


def test_a_new_pod_gets_the_limits_its_group_was_made_with():
    job = make_job(spec=make_spec(minReplicas=1), status=started())
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert planned.creates.nnodes == (2, 4096)


def test_a_shrink_takes_the_highest_worker_first_and_is_not_a_loss_afterwards():
    job = make_job(group(3), status=started(3))
    grant = make_grant(keep=["master-0", "worker-0"], release=["worker-1", "worker-2"], limit=SizeReason.AT_MAXIMUM)
    planned = plan(job, grant)
    assert names(planned.deletes) == ["toy-worker-2", "toy-worker-1"]
    assert planned.status.replicas == 2
    left = tuple(p if p.index < 1 else replace(p, deleting_since=START + 200) for p in job.pods)
    later = plan(replace(job, pods=left, status=planned.status), BOTH, now=201)
    assert later.status.restarts == 0
    assert reasons(later)["Ready"] == ("True", "Resizing")


def listed(pods):
    """The list of these pods in a status."""
    return [PodStatus(name=p.name, uid=p.uid, role=p.role, index=p.index, node=p.node, phase="Running") for p in pods]


def evicted_for_a_notebook():
    """A job with two workers, one of which is released for a foreign pod."""
    job = make_job(group(2), status=started(2, pods=listed(group(2))))
    grant = make_grant(keep=["master-0", "worker-0"], release=["worker-1"], limit=SizeReason.INSUFFICIENT_NODES)
    return job, replace(grant, preemptors={"n": "owners/notebook"}, reclaimed=True, only_for_foreign_pods=True)


def test_a_pod_is_evicted_for_a_foreign_pod_before_the_status_says_so():
    job, grant = evicted_for_a_notebook()
    planned = plan(job, grant)
    assert (names(planned.deletes), planned.write_status_first) == (["toy-worker-1"], False)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param({"only_for_foreign_pods": False}, id="a job takes the room, and has no reservation"),
        pytest.param({"pods": []}, id="the status does not list the pod"),
        pytest.param({"pods_not_listed": 1}, id="the status does not list all pods"),
    ],
)
def test_an_eviction_that_a_later_leader_could_not_explain_is_written_first(what):
    job, grant = evicted_for_a_notebook()
    status = {name: value for name, value in what.items() if name != "only_for_foreign_pods"}
    grant = replace(grant, only_for_foreign_pods=what.get("only_for_foreign_pods", True))
    assert plan(replace(job, status=job.status.model_copy(update=status)), grant).write_status_first


def test_the_eviction_of_a_master_that_is_created_elsewhere_is_written_first():
    """A later leader that finds no master counts all pods as lost."""
    job, grant = evicted_for_a_notebook()
    moved = make_grant(create=["master-0"], release=["master-0", "worker-0"]).assignment
    grant = replace(grant, assignment=moved, target_replicas=moved.replicas)
    planned = plan(replace(job, spec=make_spec(minReplicas=1), pods=group(1, nnodes=(1, 8))), grant)
    assert (names(planned.deletes), planned.status.target_replicas) == (["toy-worker-0", "toy-master-0"], 1)
    assert planned.write_status_first


def test_an_eviction_that_was_not_written_is_recorded_as_one_and_not_as_a_loss():
    job, grant = evicted_for_a_notebook()
    decided = plan(job, grant)
    context = replace(job.context, evicted_for={"uid-worker-1": "owners/notebook"})
    later = plan(replace(job, pods=group(1), context=context), make_grant(keep=["master-0", "worker-0"]))
    for one in (decided, later):
        assert (one.status.restarts, one.status.resizes, one.status.target_replicas) == (0, 1, 2)
        [change] = one.status.history
        assert (change.from_, change.to, change.reason) == (3, 2, "QuotaReclaimed")
        assert change.message.endswith("1 pod is evicted for owners/notebook, which is entitled to the GPUs.")
        assert [event.message for event in one.events] == [
            "The job shrinks from 3 to 2 pods: 1 pod is evicted for owners/notebook, which is entitled to the GPUs."
        ]


def test_a_pod_that_is_lost_beside_an_unwritten_eviction_counts_as_lost():
    pods = group(3)
    context = replace(make_job().context, evicted_for={"uid-worker-2": "owners/notebook"})
    status = started(3, pods=listed(pods))
    later = plan(
        replace(make_job(pods[:3], status=status), context=context, pods=pods[:2]),
        make_grant(keep=["master-0", "worker-0"], create=["worker-1"]),
    )
    assert (later.status.restarts, later.status.resizes) == (1, 1)
    assert [change.reason for change in later.status.history] == ["PodLost", "QuotaReclaimed"]


def test_the_change_is_complete_when_the_last_leaver_is_gone():
    history = [Change(time=at(190), from_=4, to=2, reason="ScaledDown")]
    planned = plan(make_job(status=started(history=history)), BOTH, now=205)
    assert planned.status.last_resize_time == at(205)


def test_a_size_below_what_a_command_was_made_with_starts_a_new_incarnation():
    job = make_job(group(1, nnodes=(2, 4)), spec=make_spec(minReplicas=1), status=started())
    planned = plan(job, make_grant(keep=["master-0"], release=["worker-0"]))
    assert planned.status.incarnation == 2
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]


def test_a_size_above_what_a_command_was_made_with_starts_a_new_incarnation():
    job = make_job(group(1, nnodes=(2, 2)), status=started())
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert planned.status.incarnation == 2
    assert planned.slots == ()


def test_a_job_that_left_for_another_says_for_whom_until_it_starts_again():
    taken = make_grant(
        release=["master-0", "worker-0"], limit=SizeReason.INSUFFICIENT_NODES, message="There is no room."
    )
    taken = replace(taken, preemptors={"first": "owners/first"}, reclaimed=True)
    left = plan(make_job(group()), taken)
    told = "The job is preempted: 2 pods are evicted for owners/first, which is entitled to the GPUs."
    assert told in [event.message for event in left.events if event.reason == "QuotaReclaimed"]
    assert left.status.condition("Ready").message == f"There is no room. {told}"

    waiting = make_grant(limit=SizeReason.INSUFFICIENT_NODES, message="There is still no room.")
    waits = plan(make_job((), status=left.status), waiting)
    assert waits.status.condition("Ready").message == f"There is still no room. {told}"
    assert waits.status.condition("FullSize").message == "There is still no room."

    starts = plan(make_job((), status=waits.status), make_grant(create=["master-0", "worker-0"]))
    assert "Preempted" not in starts.status.condition("Ready").message


@pytest.mark.parametrize(
    ("size_before", "changed", "gone"),
    [
        pytest.param(3, 190, ["toy-worker-0"], id="has run"),
        pytest.param(0, 0, ["toy-master-0", "toy-worker-0"], id="starts"),
        pytest.param(3, 0, ["toy-master-0", "toy-worker-0"], id="starts again after a loss"),
    ],
)
def test_a_job_below_its_minimum_that_releases_a_pod_keeps_the_rest_if_it_has_run(size_before, changed, gone):
    """If it has only begun to start, it gives back all of them: no training is lost (142)."""
    change = Change(
        time=at(changed), from_=size_before, to=2, reason="PodLost" if size_before else "Started", message=""
    )
    status = make_status(target_replicas=2, history=[change])
    job = make_job(group(1, nnodes=(3, 4096)), spec=make_spec(minReplicas=3), status=status)
    planned = plan(job, make_grant(keep=["master-0"], release=["worker-0"]))
    assert sorted(names(planned.deletes)) == gone


@pytest.mark.parametrize(("pods", "release", "excused"), [(2, [], True), (3, ["worker-1"], None)])
def test_growth_that_is_withdrawn_before_its_pod_is_there_is_excused(pods, release, excused):
    job = make_job(group(pods - 1), status=started(1).model_copy(update={"target_replicas": 3, "replicas": pods}))
    [change, *_] = plan(job, make_grant(keep=["master-0", "worker-0"], release=release)).status.history
    assert (change.from_, change.to, change.excused) == (3, 2, excused)


def test_a_job_is_resizing_from_the_decision_that_pods_go_until_they_are_gone():
    job = make_job(group(3), spec=make_spec(), status=started(4))
    taken = make_grant(
        keep=["master-0", "worker-0"], release=["worker-1", "worker-2"], limit=SizeReason.HIGHER_PRIORITY_JOBS
    )
    decided = plan(job, taken)
    assert decided.write_status_first
    assert reasons(decided)["Ready"] == ("True", "Resizing")
    assert reasons(decided)["Resizing"][0] == "True"
    assert decided.status.last_resize_time == at(200), "growth is delayed from the decision on"
    left = make_job(group(1), spec=make_spec(), status=decided.status)
    after = plan(left, make_grant(keep=["master-0", "worker-0"]), now=230)
    assert reasons(after)["Ready"] == ("True", "Running")
    assert reasons(after)["Resizing"][0] == "False"

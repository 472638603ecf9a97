"""Jobs that come and go: what must hold over all writes is checked, and reactions are read from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.live.audit import Write, request_of
from benchmarks.live.errors import BenchError
from benchmarks.live.place import CLIENT, KUBELETS, OPERATOR
from benchmarks.react.latencies import JOB_STATUS, SCALE
from benchmarks.reclaim.stages import BIND, CREATE, DELETE, POD_STATUS, SCHEDULER
from benchmarks.scale.churn import STORIES, Step, missing_nodes
from benchmarks.scale.churned import Change, Churned, Kind, Mark, changes, waits
from benchmarks.scale.fill import CREATE_JOB
from benchmarks.scale.invariants import DELETE_JOBS, DELETE_PODS, must_hold, violations
from benchmarks.scale.scenario import Scenario

MASTER, WORKER, OTHER = "a-master-0", "a-worker-0", "b-master-0"


def write(what, name, done, user=OPERATOR, *, took=0.0, **more):
    return Write(what, name, user, received=done - took, done=done, **more)


def created(pod, done, user=OPERATOR, *, took=0.0):
    return write(CREATE, pod, done, user, took=took)


def bound(pod, done, *, node="n"):
    return write(BIND, pod, done, SCHEDULER, node=node)


def told_to_go(pod, done, *, took=0.0):
    return write(DELETE, pod, done, took=took)


def gone(pod, done, *, took=0.0):
    return write(DELETE, pod, done, KUBELETS, took=took)


def ended(pod, done):
    return write(POD_STATUS, pod, done, CLIENT)


def over(job, done):
    return write(JOB_STATUS, job, done, ends=True)


RUNS = [created(MASTER, 1), bound(MASTER, 2), write(POD_STATUS, MASTER, 2.5, KUBELETS)]

HOLD = {
    "a GPU is free when the kubelet says that its pod is gone": [
        *RUNS, told_to_go(MASTER, 3), gone(MASTER, 4), created(OTHER, 4.5), bound(OTHER, 5),
    ],
    "or that it has ended": [*RUNS, ended(MASTER, 3), created(OTHER, 3.5), bound(OTHER, 4)],
    "or that it goes, in a request that is answered later": [
        *RUNS, created(OTHER, 2.7), bound(OTHER, 4), gone(MASTER, 5, took=2),
    ],
    "a pod without a node is gone at once": [created(MASTER, 1), told_to_go(MASTER, 2), created(MASTER, 3)],
    "and one that does not run yet may be": [*RUNS[:2], told_to_go(MASTER, 3), created(MASTER, 4)],
    "and so is one that has ended": [*RUNS, ended(MASTER, 3), told_to_go(MASTER, 4), created(MASTER, 5)],
    "and one that is deleted without grace": [
        *RUNS, write(DELETE, MASTER, 3, CLIENT, at_once=True), created(MASTER, 4),
    ],
    "a pod that was told to go does not count for its job's limit": [
        *RUNS, created(WORKER, 3), bound(WORKER, 3, node="m"), told_to_go(WORKER, 4), created("a-worker-1", 5),
    ],
    "not even if it was told before its creation was answered": [
        created(MASTER, 1), told_to_go(WORKER, 1.9), created(WORKER, 2, took=0.5), created("a-worker-1", 3),
    ],
    "a finished job's pods may have ended, or be about to go": [
        *RUNS, created(WORKER, 2), bound(WORKER, 2, node="m"), ended(MASTER, 3), over("a", 4), told_to_go(WORKER, 5),
    ],
    "a job of the same name is another": [
        write(CREATE_JOB, "a", 1), write(DELETE_JOBS, "", 2), write(CREATE_JOB, "a", 3), created(MASTER, 4),
    ],
    "a job that was scaled up has one pod more": [
        created(MASTER, 1), created(WORKER, 2), write(SCALE, "a", 3, CLIENT, replicas=3), created("a-worker-1", 4),
    ],
    "all pods are told to go at once": [*RUNS, write(DELETE_PODS, "", 3, CLIENT), over("a", 4)],
    "pods that the operator did not create are nobody's": [
        *[created(f"a-worker-{number}", number, CLIENT) for number in range(3)], over("a", 9),
    ],
}  # fmt: skip

BREACHES = {
    "two pods on the only GPU of a node": (
        [*RUNS, told_to_go(MASTER, 3), created(OTHER, 4), bound(OTHER, 5), gone(MASTER, 6)],
        "2 GPUs of node n taken, which has 1",
        5, [MASTER, OTHER],
    ),
    "a pod more than maxReplicas": (
        [created(MASTER, 1), created(WORKER, 2), created("a-worker-1", 3)],
        "more than maxReplicas (2) pods of job a",
        3, [MASTER, WORKER, "a-worker-1"],
    ),
    "a pod more than a job was scaled to": (
        [
            write(SCALE, "a", 1, CLIENT, replicas=3),
            *[created(pod, number) for number, pod in enumerate((MASTER, WORKER, "a-worker-1", "a-worker-2"), 2)],
        ],
        "more than maxReplicas (3) pods of job a",
        5, [MASTER, WORKER, "a-worker-1", "a-worker-2"],
    ),
    "a second pod of the same role and index": (
        [*RUNS, told_to_go(MASTER, 3), created(MASTER, 4)],
        "two pods of the same role and index",
        4, [MASTER, MASTER],
    ),
    "a pod of a job that has ended": (
        [*RUNS, created(WORKER, 2), ended(MASTER, 3), over("a", 4)],
        "pod left of a job that is over",
        4, [WORKER],
    ),
    "a pod of a job that was deleted": (
        [write(CREATE_JOB, "a", 1), write(DELETE_JOBS, "", 2, CLIENT), created(MASTER, 3)],
        "pod left of a job that is over",
        3, [MASTER],
    ),
}  # fmt: skip


@pytest.mark.parametrize("writes", HOLD.values(), ids=HOLD)
def test_what_holds_is_not_reported(writes):
    assert violations(writes, gpus=1, most=2) == []


@pytest.mark.parametrize(("writes", "what", "at", "pods"), BREACHES.values(), ids=BREACHES)
def test_what_does_not_hold_is_reported_with_its_pods_and_moment(writes, what, at, pods):
    [found] = violations(writes, gpus=1, most=2)
    assert (found.what, found.at, [pod.name for pod in found.pods]) == (what, at, pods)


def test_a_deletion_that_the_server_gave_up_may_have_come_to_pass():
    writes = [*RUNS, created(MASTER, 5), bound(MASTER, 6)]
    assert len(violations(writes, gpus=1, most=2)) == 1
    assert violations(writes, unsure=[told_to_go(MASTER, 4), created(OTHER, 7)], gpus=1, most=2) == []


def test_the_error_names_the_pods_the_node_and_the_moments():
    writes = [*RUNS, created(OTHER, 3), bound(OTHER, 4)]
    told = r"00:00:04.* node n .*a-master-0 \(created 00:00:01.*on n since 00:00:02.*b-master-0 \(created 00:00:03"
    with pytest.raises(BenchError, match=told):
        must_hold(violations(writes, gpus=1, most=2))
    must_hold(violations(writes, gpus=2, most=2))


def test_the_log_says_where_a_pod_is_bound_that_a_job_has_ended_and_that_a_deletion_is_at_once():
    event = {
        "verb": "create",
        "objectRef": {"resource": "pods", "subresource": "binding", "name": MASTER},
        "user": {"username": SCHEDULER},
        "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
        "stageTimestamp": "2026-01-01T00:00:00Z",
        "requestObject": {"target": {"kind": "Node", "name": "k1"}},
        "requestURI": "/api/v1/namespaces/scale/pods/a-master-0/binding?gracePeriodSeconds=0",
    }
    found = request_of(event)
    assert (found.what, found.node, found.at_once, found.ends) == (BIND, "k1", True, False)
    by_body = request_of({**event, "requestURI": "/", "requestObject": {"gracePeriodSeconds": 0}})
    assert (by_body.at_once, by_body.node) == (True, "")
    assert request_of({**event, "requestObject": {"status": {"completionTime": "2026-01-01T00:00:00Z"}}}).ends


def test_the_log_says_to_which_size_a_job_is_scaled():
    event = {
        "verb": "patch",
        "objectRef": {"resource": "elasticpytorchjobs", "subresource": "scale", "name": "a"},
        "user": {"username": CLIENT},
        "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
        "stageTimestamp": "2026-01-01T00:00:00Z",
        "requestObject": {"spec": {"replicas": 3}},
    }
    assert (request_of(event).what, request_of(event).replicas) == (SCALE, 3)


LIFE = [
    write(CREATE_JOB, "a", 1.0, CLIENT),
    created(MASTER, 1.2),
    created(WORKER, 1.5),
    write(POD_STATUS, MASTER, 1.75, KUBELETS),
    write(DELETE, WORKER, 3.0, CLIENT),
    created(WORKER, 3.25),
    ended(MASTER, 5.0),
    ended(WORKER, 5.1),
    write(JOB_STATUS, "a", 5.2, ready_replicas=1),
    over("a", 5.5),
]


def test_each_change_is_paired_with_its_answer():
    assert changes(LIFE, ["a"], until=9.0) == [
        Change(Kind.ARRIVED, "a", 1.0, pytest.approx(0.2), answered=True),
        Change(Kind.LOST, "a", 3.0, 0.25, answered=True),
        Change(Kind.ENDED, "a", 5.0, 0.5, answered=True),
    ]
    assert waits(LIFE, ["a"], until=9.0) == ([0.75], 0)


def test_a_successor_that_is_created_before_the_deletion_is_answered_took_some_time():
    """With a median of 0 s in its first third, a run has no growth (a division by zero)."""
    [lost] = changes([created(WORKER, 2.99), write(DELETE, WORKER, 3.0, CLIENT, took=0.02)], ["a"], until=9.0)
    assert lost == Change(Kind.LOST, "a", 3.0, pytest.approx(0.01), answered=True)


def test_a_job_that_ends_before_its_lost_pod_has_a_successor_needs_none():
    writes = [each for each in LIFE if each.done != 3.25]
    assert Change(Kind.LOST, "a", 3.0, 2.5, answered=True) in changes(writes, ["a"], until=9.0)


def test_what_is_never_answered_lasts_to_the_end():
    assert changes(LIFE[:1], ["a"], until=9.0) == [Change(Kind.ARRIVED, "a", 1.0, 8.0, answered=False)]
    assert waits(LIFE[:1], ["a"], until=9.0) == ([8.0], 1)


def came(seconds):
    """Arrivals, one a second, answered after so many seconds each."""
    made = [Change(Kind.ARRIVED, str(at), float(at), after, answered=True) for at, after in enumerate(seconds)]
    return Churned(
        begun=0.0,
        lasted=float(len(seconds)),
        rate=4.0,
        changes=made,
        waits=[1.0],
        starved=0,
        requests=30,
        marks=[mark(third, third, 100.0 + 5 * third) for third in range(5)],
    )


def mark(cpu, passes, megabytes):
    return Mark(cpu, pass_seconds=0.002 * passes, passes=passes, megabytes=megabytes, machine_seconds=6.0 * cpu)


def test_a_queue_that_grows_is_seen():
    steady, grows = came([0.5] * 9), came([0.5 * (number + 1) for number in range(9)])
    assert steady.summary()["churn_growth"] == 1.0
    assert grows.summary()["churn_growth"] == 4.0
    assert [(each.waiting(0.5), each.waiting(1)) for each in (steady, grows)] == [(0, 0), (2, 3)]
    assert (grows.summary()["churn_reaction_p50_s"], grows.summary()["churn_reaction_p99_s"]) == (2.5, 4.5)


def test_the_last_line_and_the_page_tell_what_was_measured():
    steady = came([0.5] * 9)
    told = steady.summary()
    assert (told["requests_per_change"], told["churn_rss_growth"], told["churn_starved"]) == (3.33, 1.2, 0)
    assert "| a job arrives -> its first pod is created | 9 | 500 ms | 500 ms | 500 ms | 1.00 |" in (steady.markdown())
    assert (told["churn_cpu_growth"], steady.mean_pass(1), steady.busy_cores(2)) == (1.0, pytest.approx(0.002), 2.0)
    assert "| its CPU per change, third by third | 333.3 333.3 333.3 ms |" in steady.markdown()
    assert "| its memory before, after each third, and after all | 100 105 110 115 120 MB |" in steady.markdown()
    assert replace(steady, starved=2).summary()["churn_starved"] == 2


def test_an_operator_that_needs_more_and_more_for_a_change_is_seen_whatever_the_reactions_say():
    marks = [mark(cpu, passes, 100.0) for cpu, passes in ((0, 0), (3, 3), (6, 6), (12, 9), (13, 10))]
    slower = replace(came([0.5] * 9), marks=marks)
    assert (slower.summary()["churn_cpu_growth"], slower.summary()["churn_growth"]) == (2.0, 1.0)


def test_most_jobs_finish_and_all_that_run_at_a_time_have_room():
    assert {Step.FINISH, Step.FAIL} == {story[-1] for story in STORIES}
    assert sum(story[-1] is Step.FINISH for story in STORIES) > len(STORIES) / 2
    plan = Scenario(jobs=8, size=3, tries=2)
    assert missing_nodes(plan, 0.5) == 0
    assert (plan.nodes + missing_nodes(plan, 20.0)) * 8 >= 8 * 3 + 20 * 30

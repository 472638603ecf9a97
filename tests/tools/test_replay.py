"""`elastic-operator replay`: every decision with its reason, the same from the same file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from elastic_operator.command_line import main
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.node import UnreadyNode
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.text import Reason
from tests.api.policies import make_flavor
from tests.plan.allocate.world import NOW, make_job, make_node, make_shape
from tests.plan.jobs import with_facts
from tests.plan.policies.builders import make_policy
from tests.tools.snapshots import at_rest, make_cluster_snapshot, waiting_for_nodes


def crowded():
    """A full cluster: `big` keeps what it has, `late` waits, `over` has one pod too many."""
    nodes = [make_node("n1", 4), make_node("n2", 2)]
    jobs = [
        make_job("over", 1, 1, on="n2 w4@n2", age=9),
        make_job("big", 1, 8, on="n1 n1 n1", age=5),
        make_job("late", 3, 3),
    ]
    return make_cluster_snapshot(nodes, jobs)


def decided(desk, snapshot):
    """The decisions by name."""
    said = json.loads(desk.says("replay", desk.snapshot(snapshot), "-o", "json"))
    return {job["name"]: job for job in said["jobs"]}


def test_each_job_is_told_with_its_pods_before_and_after_and_where_they_are(desk):
    jobs = decided(desk, crowded())
    over = jobs["over"]
    assert (over["before"], over["after"], over["gpus_before"], over["gpus_after"]) == (2, 1, 2, 1)
    assert [(pod["role"], pod["node"]) for pod in over["grant"]["keep"]] == [("master", "n2")]
    assert [(pod["role"], pod["index"], pod["node"]) for pod in over["grant"]["release"]] == [("worker", 4, "n2")]
    assert jobs["late"]["grant"]["create"] or jobs["late"]["grant"]["message"]


def test_each_pod_that_a_plan_creates_is_told_with_its_role_index_and_node(desk):
    jobs = decided(desk, make_cluster_snapshot([make_node("n1", 2)], [make_job("new", 2, 2)]))
    environment = {"incarnation": 1, "nnodes": [2, 4096]}
    assert jobs["new"]["plan"]["creates"] == [
        {"role": "master", "index": 0, "node": "n1", **environment},
        {"role": "worker", "index": 0, "node": "n1", **environment},
    ]


def test_each_job_is_told_with_the_reason_why_it_gets_no_more(desk):
    jobs = decided(desk, make_cluster_snapshot([make_node("n1", 2)], [make_job("big", 1, 8, on="n1 n1")]))
    assert jobs["big"]["grant"]["limit"] == "InsufficientNodes"
    assert jobs["big"]["grant"]["message"].startswith("The job gets 2 of 8 pods.")


def test_the_text_has_the_reason_and_the_pods_below_each_job_sorted_by_name(desk):
    lines = desk.says("replay", desk.snapshot(crowded())).splitlines()
    assert lines[0].split() == ["JOB", "TEAM", "FLAVOR", "PODS", "GPUS", "LIMITED", "BY"]
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == [
        "team-a/big",
        "team-a/late",
        "team-a/over",
    ]
    assert "  keep: master on n2" in lines
    assert "  release: worker 4 on n2" in lines


def test_workers_of_one_node_are_told_as_ranges(desk):
    job = make_job("a", 1, 5, on="n1 n1 n1 n1 w7@n1")
    assert "  keep: master, worker 0-2, 7 on n1" in desk.says(
        "replay", desk.snapshot(make_cluster_snapshot([make_node("n1", 5)], [job]))
    )


def test_a_pod_whose_room_is_not_free_yet_is_told_so(desk):
    said = desk.says(
        "replay", desk.snapshot(make_cluster_snapshot([make_node("n1", 2, leaving=1)], [make_job("a", 1, 2)]))
    )
    assert "once its room is free" in said


def test_the_team_is_the_one_that_owns_the_namespace(desk):
    snapshot = make_cluster_snapshot([make_node()], [make_job("a")])
    assert decided(desk, snapshot)["a"]["team"] == "namespace team-a"
    assert (
        decided(desk, replace(snapshot, policies=(make_policy("research", namespaces=["team-a"]),)))["a"]["team"]
        == "research"
    )


def test_what_is_taken_for_a_pod_that_waits_is_told_on_both_sides(desk):
    owner = make_policy("b", namespaces=["team-b"], flavors=[make_flavor(guaranteed=1)])
    shape = JobShape(make_shape(1), make_shape(1))
    waiting = ForeignPod(JobDemand("r", "team-b", "notebook", 0, NOW - 60, (1,), shape), preempts=False)
    held = make_cluster_snapshot([make_node("n1", 2)], [make_job("big", 1, 2, on="n1 n1")])
    snapshot = replace(held, policies=(owner,), foreign_pods=(waiting,))
    lines = desk.says("replay", desk.snapshot(snapshot)).splitlines()
    assert "  released for: team-b/notebook" in lines
    assert lines[-1] == "reclaim: pod team-b/notebook has a place on n1 when these are gone: team-a/big worker 0"
    said = json.loads(desk.says("replay", desk.snapshot(snapshot), "-o", "json"))
    assert [(r["name"], r["node"], r["victims"]) for r in said["nominations"]] == [("notebook", "n1", ["big-w0"])]


def lost():
    """A job of two pods, one of which was on a node that is out of service."""
    snapshot = make_cluster_snapshot([make_node("n1"), make_node("n2", ready=False)], [make_job("a", 2, 2, on="n1 n2")])
    (job,) = at_rest(snapshot).jobs
    return replace(
        snapshot,
        jobs=(replace(job, facts=with_facts(job.facts, unready={"n2": UnreadyNode(NOW, NOW, True)})),),
    )


def test_of_a_lost_pod_it_is_told_what_was_observed_why_pods_are_deleted_and_what_follows(desk):
    lines = desk.says("replay", desk.snapshot(lost())).splitlines()
    assert (
        "  observed: NodeLost: The job lost a-worker-0 (node n2 is out of service). This does not count as a failure."
        in lines
    )
    assert [line for line in lines if line.startswith(("  delete", "  create a", "  condition"))] == [
        "  delete a-worker-0 by force: node n2 is out of service",
        "  delete a-master-0: incarnation 1 is over",
        "  condition Ready: True (Running) -> False (Restarting): 0 of 2 pods run.",
    ]
    assert "  status.incarnation: 1 -> 2" in lines
    assert "  status.restarts: 1" in lines


def test_the_data_has_the_observation_the_grant_and_the_whole_plan(desk):
    job = decided(desk, lost())["a"]
    assert [event["reason"] for event in job["observed"]["events"]] == ["NodeLost", "NewIncarnation"]
    assert (job["observed"]["members"], job["observed"]["lost_nodes"]) == ([], ["n2"])
    assert job["grant"]["replicas"] == 2
    plan = job["plan"]
    assert [(pod["name"], pod["reason"], pod.get("force", False)) for pod in plan["deletes"]] == [
        ("a-worker-0", "node n2 is out of service", True),
        ("a-master-0", "incarnation 1 is over", False),
    ]
    assert plan["commit_first"]
    assert plan["status"]["incarnation"] == 2


def test_a_created_pod_is_shown_with_its_node_and_a_reason_shown_above_is_not_repeated(desk):
    lines = desk.says("replay", desk.snapshot(crowded())).splitlines()
    assert "  delete over-worker-4: as above" in lines
    [made] = [line for line in desk.says("replay", desk.snapshot(started())).splitlines() if "create a" in line]
    assert made == "  create a-master-0 on n1"


def started():
    """A job of one pod whose status says already that it has begun."""
    return at_rest(make_cluster_snapshot([make_node("n1")], [make_job("a")]))


def test_pods_that_wait_for_new_nodes_are_told_with_the_others(desk):
    snapshot = waiting_for_nodes()
    job = decided(desk, snapshot)["a"]
    assert (job["before"], job["after"], job["gpus_before"], job["gpus_after"]) == (2, 2, 2, 2)
    assert job["grant"]["limit"] == "WaitingForNodes"
    assert [(pod["role"], pod["index"]) for pod in job["grant"]["keep"]] == [("master", 0), ("worker", 0)]
    lines = desk.says("replay", desk.snapshot(snapshot)).splitlines()
    assert "  keep: master, worker 0 where the scheduler finds room" in lines


def test_a_job_without_pods_is_told_too(desk):
    (job,) = make_cluster_snapshot([], [make_job("a", on="n1")]).jobs
    suspended = replace(job, facts=replace(job.facts, spec=job.facts.spec.model_copy(update={"suspend": True})))
    lines = desk.says("replay", desk.snapshot(make_cluster_snapshot([make_node("n1")], [suspended]))).splitlines()
    assert lines[1].split() == ["team-a/a", "namespace", "team-a", "1", "->", "0", "1", "->", "0"]
    assert "  observed: ScaledDown: 1 pod is deleted, because spec.suspend is true." in lines
    assert "  delete a-master-0: incarnation 1 is over" in lines


def test_why_nobody_takes_anything_is_told_at_the_end(desk):
    stopped = Reason("Paused", "No GPUs are reclaimed: reclaim.paused is set in the operator's settings.")
    said = desk.says("replay", desk.snapshot(replace(crowded(), stopped=stopped)))
    assert said.splitlines()[-1] == f"note: {stopped.message}"
    data = json.loads(desk.says("replay", desk.snapshot(replace(crowded(), stopped=stopped)), "-o", "json"))
    assert data["stopped"] == {"reason": "Paused", "message": stopped.message}


def test_a_snapshot_of_an_older_release_is_refused_with_its_version_and_the_remedy(desk):
    [line] = desk.refuses("replay", desk.file("f", {"kind": "Snapshot", "version": 1, "snapshot": {}}))
    assert line == (
        "elastic-operator: f: kind: 'Snapshot': is version 1 of a snapshot, which has the allocation only: must be"
        " ClusterSnapshot; take it again, or read it with the release that wrote it"
    )


def test_the_same_jobs_in_another_order_are_told_alike(desk):
    snapshot = crowded()
    turned = replace(snapshot, jobs=snapshot.jobs[::-1], nodes=snapshot.nodes[::-1])
    for output in ("text", "json"):
        assert desk.says("replay", desk.snapshot(snapshot), "-o", output) == desk.says(
            "replay", desk.snapshot(turned), "-o", output
        )


def test_a_file_that_is_no_snapshot_is_refused(desk):
    assert "f: kind: 'Pod': must be ClusterSnapshot" in desk.refuses("replay", desk.file("f", {"kind": "Pod"}))[0]
    assert "f: is not JSON" in desk.refuses("replay", desk.file("f", "kind: Snapshot"))[0]


def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["snapshot", "--schema"]) == 0


def test_the_schema_is_printed_and_can_go_to_a_file(desk):
    said = desk.says("snapshot", "--schema")
    assert desk.says("snapshot", "--schema", "--output", str(desk.folder / "schema")) == ""
    assert (desk.folder / "schema").read_text() == said
    assert "cannot be written" in desk.refuses("snapshot", "--schema", "--output", str(desk.folder / "no" / "f"))[0]

"""What other projects publish as input and expected outcome of fair share and reclaim, under the same names.

Where this project decides otherwise, on purpose, the table `OTHERWISE` says what comes out here and why.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.fair_share import Claimant, divide
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.demand import JobDemand, Member
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.team import Quota, Team, Teams
from tests.plan.allocate.world import NOW, carried_out, make_inputs, make_job, make_node, make_shape

SCENARIOS = json.loads((Path(__file__).parent / "scenarios.json").read_text())
GROUPS = ("reclaim_elastic", "preempt_elastic", "allocate_elastic", "reclaim", "reclaim_departments")
PRIORITY = {"Train": 50, "Train - 1": 49, "InteractivePreemptible": 75, "Build": 100, "Inference": 125}
UNBOUNDED = 1_000

OTHERWISE = {
    "1 train job of 2 GPUs from queue0 running on node0 with deserved of 1, 2 pending jobs from queue1 - reclaim": (
        {"pending_job1": "Pipelined"},
        "the source shows its first cycle only; the GPU that the eviction leaves over is idle, so it is lent at once",
    ),
    "Elastic inference job preempts train job": (
        {"pending_job0-1": "Pipelined"},
        "as above: the job that goes leaves two GPUs, and the elastic job grows into the second one at once",
    ),
    "Reclaim from overquota department with multiple departments": (
        {"d1_p2_job4": "Releasing", "d2_job8": "Running"},
        "d1 is at its guarantee already, so it may take nothing from d2; its own project gives back what it borrowed",
    ),
}


def applicable(cases):
    return [pytest.param(case, id=case["name"]) for case in cases if case.get("applies", True)]


@pytest.mark.parametrize("case", applicable(SCENARIOS["fair_share"]))
def test_fair_share(case):
    claimants = [
        Claimant(
            name,
            requested=queue["request"],
            guaranteed=queue["deserved"],
            limit=None if queue["limit"] == -1 else queue["limit"],
            weight=queue["weight"],
            priority=queue["priority"],
            created=queue["created"],
        )
        for name, queue in case["queues"].items()
    ]
    shares, remaining = divide(case["total"], claimants)
    assert shares == case["expectFairShare"]
    assert remaining == case.get("expectRemaining", remaining)


@pytest.mark.parametrize("case", applicable(SCENARIOS["koordinator_runtime_quota"]["cases"]))
def test_runtime_quota(case):
    claimants = [
        Claimant(
            name,
            requested=node["request"],
            guaranteed=node.get("guarantee", node["min"]),
            weight=node["weight"],
        )
        for name, node in case["nodes"].items()
    ]
    assert divide(case["total"], claimants)[0] == case["expect"]


def test_two_teams_on_four_gpus():
    """The vendor's tutorial: the elastic job of one project has what the other leaves, and gives it back."""
    scenario = SCENARIOS["two_teams_on_four_gpus"]
    teams = [
        Team(name, quotas={"default": Quota(guaranteed=project["guaranteed"])})
        for name, project in scenario["projects"].items()
    ]
    wanted = {"b idle": 0, "b starts using GPUs": 2, "b stops": 0}
    inputs = _four_gpus(teams, [make_job("a", 2, 4, team="project-a")])
    for moment in scenario["timeline"]:
        pods = wanted[moment["event"]]
        others = [make_job("b", pods, team="project-b")] if pods else []
        jobs = [job for job in inputs.jobs if job.uid == "a"] + others
        inputs = _four_gpus(teams, jobs)
        granted = allocate(inputs)
        assert granted["a"].assignment.replicas == moment["a_pods"], moment["event"]
        inputs = carried_out(inputs, granted)


def _four_gpus(teams, jobs):
    return make_inputs([make_node(f"n{i}", 1) for i in range(4)], jobs, teams=teams)


@pytest.mark.parametrize("case", applicable([c for group in GROUPS for c in SCENARIOS[group]["cases"]]))
def test_allocation(case):
    otherwise, _ = OTHERWISE.get(case["name"], ({}, ""))
    expected = {name: state for name, state in case["expect"].items() if _job_of(case, name)}
    assert {name: _state(case, name) for name in expected | otherwise} == expected | otherwise


def _job_of(case, name):
    return next((j for j in case["jobs"] if j["name"] in (name, name.rpartition("-")[0])), None)


def _state(case, name):
    """The state of a job (if all its pods have the same) or of one pod, in the source's words."""
    granted = allocate(_inputs(case))
    job = next((j for j in case["jobs"] if j["name"] == name), None)
    if job is None:
        owner, _, index = name.rpartition("-")
        return _pod_state(next(j for j in case["jobs"] if j["name"] == owner), int(index), granted[owner])
    states = {_pod_state(job, i, granted[name]) for i in range(len(job["pods"]))}
    assert len(states) == 1, states
    return states.pop()


def _pod_state(job, index, grant):
    """Running, Releasing, Pending; Binding if there is room now, Pipelined if there will be (here or elsewhere)."""
    uid = f"{job['name']}-{index}"
    running = [i for i, pod in enumerate(job["pods"]) if pod["state"] == "Running"]
    if index in running and uid in grant.assignment.keep:
        return "Running"
    waiting = [i for i in _by_order(job) if i not in running or f"{job['name']}-{i}" in grant.assignment.release]
    place = waiting.index(index) if index in waiting else len(waiting)
    if place < len(grant.assignment.create):
        return "Binding" if grant.assignment.create[place].ready and index not in running else "Pipelined"
    return "Releasing" if index in running else "Pending"


def _by_order(job):
    """Which pods the source fills first: those of the higher order, then as listed."""
    return sorted(range(len(job["pods"])), key=lambda i: (-(job["pods"][i].get("order") or 0), i))


def _inputs(case):
    teams = [_team(name, queue, i) for i, (name, queue) in enumerate(case["queues"].items())]
    teams += [_team(name, queue, 0) for name, queue in case.get("departments", {}).items()]
    return AllocationInputs(
        now=NOW,
        nodes=tuple(make_node(name, gpus) for name, gpus in case["nodesGPU"].items()),
        jobs=tuple(_job(job, i) for i, job in enumerate(case["jobs"])),
        teams=Teams(tuple(teams), {name: name for name in case["queues"]}),
    )


def _team(name, queue, age):
    guaranteed = UNBOUNDED if queue["deserved"] == -1 else queue["deserved"]
    weight = 1 if queue.get("weight") is None else Fraction(queue["weight"])
    quota = Quota(guaranteed=guaranteed, weight=int(weight))
    return Team(name, created=float(age), parent=queue.get("parent"), quotas={"default": quota})


def _job(job, age):
    shape = make_shape(job["gpuPerPod"], cpu=0)
    gang = job["minAvailable"]
    low = gang if isinstance(gang, int) else len(job["pods"])
    members = tuple(
        Member.at(f"{job['name']}-{i}", Slot("worker" if i else "master", max(0, i - 1), pod["node"], True), shape)
        for i, pod in enumerate(job["pods"])
        if pod["state"] == "Running"
    )
    return JobDemand(
        uid=job["name"],
        namespace=job["queue"],
        name=job["name"],
        priority=PRIORITY[job["priorityClass"]],
        created=float(age),
        sizes=tuple(range(low, len(job["pods"]) + 1)),
        shape=JobShape(shape, shape),
        members=members,
        is_admitted=bool(members),
        undelayed_size=99,
        preemptible=job["priorityClass"] not in ("Build", "Inference"),
        running_since=NOW - 100 if members else None,
    )

"""The number of requests per job, and the delay of a job's status behind its pods (151, 152)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.requests import Request, is_a_write, makes_a_pod, writes_job_status
from tests.simulate import server as kinds
from tests.simulate.facts import ended, gpus_of, name_of, node_of, owner_of, terminating
from tests.simulate.server import Body
from tests.virtual.actions import (
    condition,
    delete_pod,
    edit,
    end,
    job,
    leads,
    nodes,
    of,
    replica,
    settled,
    start_pods,
    stop,
)
from tests.virtual.scenario import Scenario, Step, run_scenario
from tests.virtual.world import SETTINGS, ProcessWorld

MOST_SECONDS = 1.0
"""A job's status is never further behind its pods."""
MOST_STATUSES = 3
"""Of a job from its creation until it runs: its pods are made, they are placed, they run."""
ELASTIC = {
    "runtime": {"mode": "Elastic"},
    "elasticity": {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1, "checkpointPath": "/checkpoints"},
}
MODES = pytest.mark.parametrize("spec", [{}, ELASTIC], ids=["Torchrun", "Elastic"])


def of_jobs(request: Request) -> bool:
    """Not one that an operator sends whether there are jobs or not."""
    return not request.watches and not request.of_lease


def sent(world: ProcessWorld, since: float) -> list[Request]:
    """What was sent since then for jobs, whatever came of it."""
    entries = (entry for each in world.replicas for entry in each.line.requests(since=since, where=of_jobs))
    return [entry.request for entry in entries]


@MODES
@pytest.mark.parametrize("then", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_a_job_of_four_pods_that_starts_costs_three_statuses_and_little_else(
    seed: int, then: float, spec: dict[str, Any]
) -> None:
    comes = (start_pods(first=1.0, then=then), job(small=4, big=4, **spec))
    world = run_scenario(
        (
            Step("an operator leads", (nodes(4, 1), replica()), (leads(0),), hold_seconds=1.0),
            Step("a job comes, and runs", comes, (settled("toy", 4),), hold_seconds=10.0),
        ),
        seed,
    )
    requests = sent(world, world.step_began)
    assert sum(map(writes_job_status, requests)) <= MOST_STATUSES, list(map(str, requests))
    assert all(map(is_a_write, requests)), "something was read before it was written"
    also = sum(of(plural)(one) and not makes_a_pod(one) for one in requests for plural in ("pods", "secrets"))
    assert (len(requests) - also) / 4 <= 2.5, list(map(str, requests))
    assert also == (2 if spec else 0), "the Secret of an Elastic job, and its members' uids"


@pytest.mark.parametrize("seed", range(3))
def test_an_operator_that_leads_from_its_start_lists_each_kind_once(seed: int) -> None:
    """Nobody else writes since it holds the lease, so there is nothing to compare (169)."""
    world = run_scenario((Step("an operator leads", (nodes(1, 1), replica()), (leads(0),)),), seed)
    read = [one.path for one in sent(world, 0.0) if one.method == "GET"]
    lists = [path for path in read if not path.endswith(("/priorityclasses", "/deviceclasses", "/elasticpytorchjobs"))]
    assert len(lists) == len(set(lists)) == 8, read


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_stops_hands_over_what_it_has_seen_so_its_successor_compares_no_store(seed: int) -> None:
    world = run_scenario(
        (
            Step("an operator leads", (nodes(2, 8), replica()), (leads(0),), within_seconds=1),
            Step("a job runs", (replica(), job(big=2)), (settled("toy", 2),), hold_seconds=20),
            Step("the leader stops", (stop(0),), (leads(1),), within_seconds=3),
        ),
        seed,
    )
    entries = world.replicas[1].line.requests(since=world.step_began, where=of_jobs)
    assert [entry.request.path for entry in entries if entry.request.method == "GET"] == ["/api/v1/namespaces"]


class Lag:
    """For how long a job's status has said what is not true of its pods any more."""

    def __init__(self) -> None:
        self.pods: dict[str, list[tuple[float, str]]] = {}
        """By their names what they were since when: "" for not there."""
        self.gpus: list[tuple[float, int]] = []

    def watch(self, world: ProcessWorld) -> None:
        """From now on."""

        def changed(plural: str, old: Body | None, new: Body | None) -> None:
            body = new or old
            if plural == kinds.PODS and body and owner_of(body):
                self.pods.setdefault(name_of(body), [(0.0, "")]).append((world.clock.passed, _seen(new)))
                pods = [pod for pod in world.server.all(kinds.PODS) if owner_of(pod) and node_of(pod)]
                self.gpus.append((world.clock.passed, sum(gpus_of(pod) for pod in pods if not ended(pod))))

        world.server.listeners.append(changed)

    def is_long(self, world: ProcessWorld) -> bool:
        """Whether anything is told that has not been true for too long."""
        status, until = world.status("toy"), world.clock.passed - MOST_SECONDS
        reported = {pod["name"]: pod["phase"] for pod in status.get("pods", ())}
        for name, known in self.pods.items():
            is_announced = reported.get(name) == "Terminating" and known[-1][1] in ("Pending", "Running")
            if not is_announced and reported.get(name, "") not in _true_since(known, until):
                return True
        return bool(self.gpus) and status.get("gpus", 0) not in _true_since([(0.0, 0), *self.gpus], until)


def _seen(pod: Body | None) -> str:
    if pod is None:
        return ""
    return "Terminating" if terminating(pod) and not ended(pod) else str(pod["status"]["phase"])


def _true_since(known: list[tuple[float, Any]], time: float) -> set[Any]:
    """What has been true at any moment since then."""
    ends = [since for since, _ in known[1:]]
    return {seen for (_, seen), over in zip(known, [*ends, float("inf")], strict=True) if over >= time}


def told_in_time(lag: Lag, spec: dict[str, Any]) -> Scenario:
    """Pods of a job come and go in many ways."""
    late = (lag.is_long,)
    begins = (nodes(6, 1), lag.watch, start_pods(first=0.5, then=0.7), replica(), job(small=2, big=4, **spec))
    fewer, more = edit("toy", maxReplicas=2), edit("toy", maxReplicas=6)
    return (
        Step("it starts slowly", begins, (settled("toy", 4),), within_seconds=10, never=late, hold_seconds=3.0),
        Step("it shrinks", (fewer,), (settled("toy", 2),), never=late, hold_seconds=3.0),
        Step("it grows", (more,), (settled("toy", 6),), within_seconds=10, never=late, hold_seconds=3.0),
        Step(
            "a pod is lost",
            (delete_pod("toy-worker-1"),),
            (settled("toy", 6),),
            within_seconds=20,
            never=late,
            hold_seconds=3.0,
        ),
        Step(
            "a script fails",
            (end(1, "toy-master-0"),),
            (settled("toy", 6),),
            within_seconds=60,
            never=late,
            hold_seconds=3.0,
        ),
        Step("it is suspended", (edit("toy", suspend=True),), (condition("toy", "Ready", "Suspended"),), never=late),
        Step(
            "it goes on",
            (edit("toy", suspend=False),),
            (settled("toy", 6),),
            within_seconds=20,
            never=late,
            hold_seconds=3.0,
        ),
        Step(
            "it ends",
            (end(0, "toy-master-0"),),
            (condition("toy", "Ready", "Succeeded"),),
            never=late,
            hold_seconds=70.0,
        ),
    )


@MODES
@pytest.mark.parametrize("seed", range(3))
def test_a_status_is_never_more_than_a_second_behind_the_job_s_pods(seed: int, spec: dict[str, Any]) -> None:
    run_scenario(told_in_time(Lag(), spec), seed, settings=SETTINGS)


@pytest.mark.parametrize("seed", range(3))
def test_a_pod_that_is_gone_before_the_status_that_tells_of_it_is_noticed_as_lost(seed: int) -> None:
    def deletes_the_last(world: ProcessWorld) -> None:
        def after(request: Request, status: int) -> None:
            if makes_a_pod(request) and status < 300 and len(world.pods()) == 4 and not gone:
                gone.append(request.body["metadata"]["name"])
                world.server.delete_pod(world.pod(gone[0]), grace=0)

        gone: list[str] = []
        world.replicas[0].line.after = after

    def has_lost_one(world: ProcessWorld) -> bool:
        return [one["reason"] for one in world.status("toy").get("history", ())] == ["PodLost", "Started"]

    run_scenario(
        (
            Step("an operator leads", (nodes(4, 1), replica()), (leads(0),)),
            Step("a pod goes as it comes", (deletes_the_last, job(small=3, big=4)), (has_lost_one,)),
            Step("another one comes", expect=(settled("toy", 4),), within_seconds=20),
        ),
        seed,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_job_whose_time_is_over_is_deleted_once(seed: int) -> None:
    comes = (start_pods(first=1.0, then=0.05), job(small=2, big=2, ttlSecondsAfterFinished=5))
    world = run_scenario(
        (
            Step("an operator leads", (nodes(2, 1), replica()), (leads(0),), hold_seconds=1.0),
            Step("a job comes, and runs", comes, (settled("toy", 2),), hold_seconds=5.0),
            Step(
                "it ends, and goes",
                (end(0, "toy-master-0"),),
                (lambda world: world.job("toy") is None,),
                hold_seconds=5.0,
            ),
        ),
        seed,
    )
    deletes = [
        each for each in sent(world, world.step_began) if each.method == "DELETE" and of("elasticpytorchjobs")(each)
    ]
    assert len(deletes) == 1, list(map(str, deletes))

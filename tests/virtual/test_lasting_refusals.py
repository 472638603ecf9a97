"""While a refusal lasts, the operator waits longer and longer: it repeats no write at the speed of its passes.

Nothing else limits a loop of a pass, its write, and the answer that wakes the next pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from elastic_worker.contract import LABEL_INCARNATION
from tests.kit.requests import DENIED, Matcher, Request, deletes_a_pod, makes_a_pod, nominates, writes_job_status
from tests.simulate import server as kinds
from tests.simulate.facts import node_of
from tests.simulate.server import Body
from tests.virtual.actions import HOME, delete_pod, edit, job, leads, nodes, of, refuse, replica, settled
from tests.virtual.scenario import Action, Condition, Step, run_scenario
from tests.virtual.world import ProcessWorld

LASTS_SECONDS = 60.0
WINDOW_SECONDS, MOST_EQUAL = 10.0, 10
"""With waits of 0.2 s that double, a write is tried six times within this time; another one may be due beside it."""
OWNER = "red"
ELASTIC: Mapping[str, Any] = {
    "runtime": {"mode": "Elastic"},
    "elasticity": {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1, "checkpointPath": "/checkpoints"},
}
MESSAGES = {403: 'pods "a" is forbidden: exceeded quota: gpus', 409: DENIED, 422: 'Pod "a" is invalid: spec', 500: "no"}
CODES = tuple(MESSAGES)


def annotates(request: Request) -> bool:
    """Whether the request changes the annotations of a pod."""
    return request.method == "PATCH" and "/pods/" in request.path and not request.path.endswith("/status")


def writes(plural: str) -> Matcher:
    """Matches creations and changes of that kind, or of its status."""
    return lambda request: request.writes and of(plural)(request)


def busiest(world: ProcessWorld) -> tuple[int, str]:
    """The most equal requests within the window since the step began, and which ones."""
    times: dict[str, list[float]] = defaultdict(list)
    for entry in world.replicas[0].line.requests(since=world.step_began):
        request = entry.request
        if not request.watches and not request.of_lease:
            name = request.body["metadata"]["name"] if request.method == "POST" else ""
            times[f"{request.method} {request.path} {name}"].append(entry.at)
    most = {
        what: max(sum(at <= one < at + WINDOW_SECONDS for one in all_) for at in all_) for what, all_ in times.items()
    }
    return max((count, what) for what, count in most.items())


def was_answered(code: int) -> Condition:
    """A request was answered with that code in this step."""
    return lambda world: any(entry.status == code for entry in world.replicas[0].line.requests(since=world.step_began))


def withdraws(request: Request) -> bool:
    """Whether the request withdraws a nomination."""
    return nominates(request) and not request.body["status"]["nominatedNodeName"]


def reclaims(world: ProcessWorld) -> None:
    """A pod of the team that owns the GPUs waits for them, and kube-scheduler does not place it."""
    world.machines.never.add(world.add_foreign(OWNER, gpus=1, pool="a")["metadata"]["uid"])


def owned(*namespaces: str) -> Action:
    """A policy that guarantees all GPUs to the owner."""
    spec = {"namespaces": [*namespaces], "flavors": [{"name": "a", "guaranteed": 4}]}
    return lambda world: world.server.create(kinds.POLICIES, {"metadata": {"name": OWNER}, "spec": spec})


def is_lost_with_a_finalizer(world: ProcessWorld) -> None:
    """A pod has a finalizer, and its node is off."""
    pod = world.pod("toy-worker-0")
    world.server.relabel(kinds.PODS, pod, finalizers=["example.com/keeps"])
    node = world.server.find(kinds.NODES, "", node_of(pod))
    assert node is not None
    world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [world.readiness(False)]})


def mutates(label: str | None) -> Action:
    """A webhook sets that incarnation on each new pod; None: it removes the label."""

    def admit(_request: Request, plural: str, body: Body) -> None:
        if plural == kinds.PODS:
            labels = {key: value for key, value in body["metadata"]["labels"].items() if key != LABEL_INCARNATION}
            body["metadata"]["labels"] = labels if label is None else {**labels, LABEL_INCARNATION: label}

    return lambda world: world.api.admission.append(admit)


def names_the_label(world: ProcessWorld) -> bool:
    """The job's status says which label is at fault."""
    return LABEL_INCARNATION in world.status("toy").get("failedSize", {}).get("reason", "")


RUNS = (job(small=2, big=2, recovery={"nodeLossSeconds": 5}),)
RUNS_ELASTIC = (job(small=2, big=2, **ELASTIC),)
LENT = (owned(OWNER), *RUNS, job("other", small=2, big=2))
SUSPEND, GROW = edit("toy", suspend=True), edit("toy", maxReplicas=4)
REFUSED: dict[str, tuple[tuple[Action, ...], Matcher, Action]] = {
    "a status of a job": (RUNS, writes_job_status, GROW),
    "a status of a job that starts": ((), writes_job_status, job()),
    "a creation of a pod": ((), makes_a_pod, job()),
    "a creation of a further pod": (RUNS, makes_a_pod, GROW),
    "a creation of an Elastic job's pod": (RUNS_ELASTIC, makes_a_pod, GROW),
    "a deletion of a pod": (RUNS, deletes_a_pod, SUSPEND),
    "an annotation": (RUNS_ELASTIC, annotates, GROW),
    "a Service": ((), writes("services"), job()),
    "an EndpointSlice": ((), writes("endpointslices"), job()),
    "a Secret": ((), writes("secrets"), job(**ELASTIC)),
    "a nomination": (LENT, nominates, reclaims),
    "the end of a nomination": (LENT, withdraws, reclaims),
    "a status of a policy": ((), writes("gpuquotapolicies"), owned(HOME)),
    "an event": ((), writes("events"), job()),
}
"""The actions before, the writes that the API server then refuses, and the action that causes these writes."""
OTHERS: dict[str, tuple[tuple[Action, ...], tuple[Action, ...], tuple[Condition, ...]]] = {
    "a pod with a finalizer is on a lost node": (RUNS, (is_lost_with_a_finalizer,), ()),
    "a webhook sets no incarnation": ((), (mutates(None), *RUNS), (names_the_label,)),
    "a webhook sets another incarnation": ((), (mutates("7"), *RUNS), (names_the_label,)),
    "a webhook sets the last incarnation": (RUNS, (mutates("1"), delete_pod("toy-master-0")), (names_the_label,)),
}
CASES = {
    f"{what}, {code}": (before, (refuse(code, where=where, message=MESSAGES[code]), action), (was_answered(code),))
    for what, (before, where, action) in REFUSED.items()
    for code in CODES
} | OTHERS


@pytest.mark.parametrize("case", CASES)
def test_no_write_is_repeated_without_a_wait_while_it_is_refused(case: str) -> None:
    before, actions, expect = CASES[case]
    runs = (settled("toy", 2),) if set(before) & {*RUNS, *RUNS_ELASTIC} else ()
    world = run_scenario(
        (
            Step("an operator leads", (nodes(4, 1), replica()), (leads(0),)),
            Step("before", before, runs, within_seconds=10, hold_seconds=2),
            Step("it is refused", actions, expect, within_seconds=200, hold_seconds=LASTS_SECONDS),
        ),
        0,
    )
    count, what = busiest(world)
    assert count <= MOST_EQUAL, what


def makes_a_worker(request: Request) -> bool:
    """Whether the request creates a worker's pod."""
    return makes_a_pod(request) and "worker" in request.body["metadata"]["name"]


def refusal_of_a_worker(*also: Action) -> ProcessWorld:
    """A quota refuses the worker of a job for some minutes, and the master may not stay without it."""
    return run_scenario(
        (
            Step("an operator leads", (nodes(4, 1), replica()), (leads(0),)),
            Step(
                "a quota refuses the worker",
                (refuse(403, where=makes_a_worker, message=MESSAGES[403]), *also, job(small=2, big=2)),
                (lambda world: "failedSize" in world.status("toy"),),
                within_seconds=30,
                hold_seconds=5 * LASTS_SECONDS,
            ),
        ),
        0,
    )


def counts(world: ProcessWorld) -> tuple[int, int]:
    """How often a worker was tried, and how often the refusals count."""
    entries = world.replicas[0].line.requests(since=world.step_began)
    tried = sum(makes_a_worker(entry.request) for entry in entries)
    return tried, world.status("toy")["failedSize"]["attempt"]


def test_a_refusal_counts_once_however_long_the_deletion_of_the_other_pods_fails() -> None:
    """No pod is tried meanwhile. Each count makes the wait longer, and costs an event and an incarnation."""
    world = refusal_of_a_worker(refuse(403, where=deletes_a_pod, message=DENIED))
    assert counts(world) == (1, 1)
    assert world.status("toy")["incarnation"] == 2


def counts_a_refusal(request: Request) -> bool:
    """Whether the request writes a status with a failed size."""
    return writes_job_status(request) and "failedSize" in request.body["status"]


@pytest.mark.parametrize("times", [0, 3], ids=["at once", "at the fourth try"])
def test_each_refusal_counts_when_its_status_is_written(times: int) -> None:
    tried, counted = counts(refusal_of_a_worker(refuse(500, where=counts_a_refusal, times=times)))
    assert tried == counted > 3

"""ResourceQuotas of plain pods, written by whole operators: they follow policies and pods, also when leaders die."""

from __future__ import annotations

import pytest

from elastic_operator.build.resource_quota import QUOTA_NAME
from elastic_operator.settings import PlainPodQuota
from tests.kit.requests import Request
from tests.simulate import server as kinds
from tests.simulate.api import QUOTAS
from tests.simulate.facts import GPU, name_of, node_of, owner_of
from tests.virtual.actions import job, kill, leads, nodes, refuse, replica, settled
from tests.virtual.scenario import Action, Condition, Scenario, Step, run_scenario
from tests.virtual.world import SETTINGS, ProcessWorld

ON = SETTINGS.model_copy(update={"plain_pod_quota": PlainPodQuota(enabled=True)})
ELECTED = 40.0
"""Long enough for the next leader."""


def policy(name: str, *namespaces: str, guaranteed: int) -> Action:
    """An administrator writes it, or writes it anew."""
    spec = {"namespaces": list(namespaces), "flavors": [{"name": "a", "guaranteed": guaranteed}]}

    def do(world: ProcessWorld) -> None:
        known = world.server.find(kinds.POLICIES, "", name)
        if known is None:
            world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})
        else:
            world.server.edit(kinds.POLICIES, known, spec)

    return do


def plain_pod(namespace: str, *, gpus: int = 1) -> Action:
    """Somebody makes one, for the scheduler to place."""
    return lambda world: world.add_foreign(namespace, gpus=gpus, pool="a")


def end_of_plain_pods(world: ProcessWorld) -> None:
    """All are deleted."""
    for pod in [pod for pod in world.server.all(kinds.PODS) if owner_of(pod) is None]:
        world.server.delete_pod(pod, grace=0)


def no_policy(name: str) -> Action:
    """It is deleted."""
    return lambda world: world.server.remove(kinds.POLICIES, world.server.find(kinds.POLICIES, "", name) or {})


def no_quota(namespace: str) -> Action:
    """Somebody deletes it."""
    return lambda world: world.server.remove(QUOTAS, world.server.find(QUOTAS, namespace, QUOTA_NAME) or {})


def quotas(**limits: int) -> Condition:
    """These namespaces have one, with these limits, and no others."""
    wanted = {name: str(limit) for name, limit in limits.items()}

    def look(world: ProcessWorld) -> bool:
        found = world.server.all(QUOTAS)
        hard = {one["metadata"]["namespace"]: one["spec"]["hard"][f"requests.{GPU}"] for one in found}
        return hard == wanted

    return look


def bound(world: ProcessWorld) -> bool:
    """Every plain pod has a node."""
    plain = [pod for pod in world.server.all(kinds.PODS) if owner_of(pod) is None]
    return bool(plain) and all(node_of(pod) for pod in plain)


def untouched(world: ProcessWorld) -> bool:
    """No quota was written in this step."""
    sent = [entry.request.path for one in world.replicas for entry in one.writes(since=world.step_began)]
    return not any(f"/{QUOTAS}" in path for path in sent)


def of_quotas(request: Request) -> bool:
    """Whether the request is about them."""
    return f"/{QUOTAS}" in request.path


BEGUN = Step(
    "two namespaces share a guarantee",
    (nodes(2, 4), policy("team", "red", "blue", guaranteed=4), replica()),
    (quotas(red=4, blue=4),),
)
SCENARIOS: dict[str, Scenario] = {
    "they follow pods": (
        BEGUN,
        Step("a pod in one takes its GPUs off the other", (plain_pod("red", gpus=3),), (quotas(red=4, blue=1), bound)),
        Step("nothing is written while nothing changes", expect=(untouched,), hold_seconds=200.0),
        Step("one that waits for a node counts, too", (plain_pod("blue", gpus=16),), (quotas(red=0, blue=1),)),
        Step("they go", (end_of_plain_pods,), (quotas(red=4, blue=4),)),
    ),
    "they follow policies": (
        BEGUN,
        Step("another guarantee", (policy("team", "red", "blue", guaranteed=2),), (quotas(red=2, blue=2),)),
        Step("a namespace leaves it", (policy("team", "red", guaranteed=2),), (quotas(red=2),)),
        Step("a team that is guaranteed nothing", (policy("poor", "free", guaranteed=0),), (quotas(red=2, free=0),)),
        Step("a policy goes", (no_policy("team"),), (quotas(free=0),)),
    ),
    "jobs that give back count for nothing": (
        BEGUN,
        Step("a job takes all there is", (policy("lent", "free", guaranteed=4), job()), (settled("toy", 8),)),
        Step("its team may make plain pods all the same", expect=(quotas(red=4, blue=4, free=4),), hold_seconds=5.0),
    ),
    "one that somebody deletes comes back": (
        BEGUN,
        Step("it is deleted", (no_quota("red"),), (quotas(red=4, blue=4),)),
    ),
    "the next leader goes on, and mends what happened meanwhile": (
        BEGUN,
        Step("a standby", (replica(),), (lambda world: len(world.replicas) == 2,), hold_seconds=5.0),
        Step(
            "the leader dies, a pod comes and a quota goes",
            (kill(0), plain_pod("red"), no_quota("red")),
            (leads(1), quotas(red=4, blue=3)),
            within_seconds=ELECTED,
        ),
    ),
    "an operator that may not keep them runs jobs": (
        Step("without the right", (nodes(2, 4), replica(), refuse(403, where=of_quotas), job()), (settled("toy", 8),)),
    ),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SCENARIOS)
def test_quotas_of_plain_pods_are_kept(name: str, seed: int) -> None:
    run_scenario(SCENARIOS[name], seed, settings=ON)


def test_without_the_setting_there_are_no_quotas_and_no_requests_for_them() -> None:
    rows = (
        Step("a policy", (nodes(1, 4), policy("team", "red", guaranteed=4), replica()), (leads(0),), hold_seconds=30.0),
    )
    world = run_scenario(rows, 1)
    assert not world.server.all(QUOTAS)
    assert not world.replicas[0].line.requests(where=of_quotas)


def test_they_all_bear_the_one_name_that_the_operators_rights_are_over() -> None:
    world = run_scenario((BEGUN,), 1, settings=ON)
    assert {name_of(one) for one in world.server.all(QUOTAS)} == {QUOTA_NAME}

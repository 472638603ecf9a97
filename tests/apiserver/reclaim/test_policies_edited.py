"""Policies change while jobs run and pods wait: what is wrong is told, and nobody loses a pod who need not."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from tests.apiserver.faults.lab import MERGE, World, elastic_job
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed, Start

pytestmark = pytest.mark.apiserver


def label(api: httpx.Client, namespace: str, team: str | None) -> None:
    """Whose namespace it is."""
    change = {"metadata": {"labels": {"team": team}}}
    api.patch(f"/api/v1/namespaces/{namespace}", headers=MERGE, json=change).raise_for_status()


def test_edits_and_deletions_cost_nobody_a_gpu_while_a_pod_without_a_right_waits(
    observed: Observed, policies: Policies, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    owner.create()
    owner.wait_bound()
    world.wait_settled("toy", 7)
    guest.create()
    guest.wait_unschedulable()
    losses = Losses(world.api, world.jobs.namespace)
    policies.change("owner", flavors=quota(0, limit=0))
    policies.wait_condition("owner", "ForeignOverLimit", "True", "ForeignPods")
    policies.change("borrower", flavors=quota(9))
    policies.wait_condition("borrower", "Overcommitted", "True", "GuaranteesExceedGPUs")
    policies.change("borrower", flavors=quota(0), parent="gone")
    policies.wait_condition("borrower", "Ready", "False", "ParentMissing")
    observed.see_passes(world)
    policies.delete("owner")
    policies.delete("borrower")
    observed.see_passes(world)
    assert losses.names() == []
    assert owner.node()
    policies.change("guest", flavors=quota(1, limit=0))
    guest.wait_bound()
    world.wait_settled("toy", 6)
    assert len(losses.pods()) == 1


@pytest.mark.extended
def test_a_second_policy_for_a_namespace_changes_nothing_and_says_so(
    observed: Observed, policies: Policies, world: World, guest: Notebooks
) -> None:
    guest.create()
    guest.wait_unschedulable()
    losses = Losses(world.api, world.jobs.namespace)
    time.sleep(1.1)  # ages have whole seconds
    policies.create("z-young", namespaces=[guest.namespace], flavors=quota(8))
    message = policies.wait_condition("z-young", "Conflict", "True", "Conflict")
    assert message.startswith(f"namespace {guest.namespace}: belongs to the older policy '{policies.name('guest')}'")
    observed.see_passes(world)
    assert losses.names() == []
    assert observed.steps() == []
    policies.delete("guest")
    policies.wait_condition("z-young", "Conflict", "False", "NoConflict")
    guest.wait_bound()
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 1


@pytest.mark.extended
def test_a_namespace_that_changes_its_team_costs_nobody_a_gpu_before_somebody_has_a_right_to_it(
    start: Start, policies: Policies, world: World, notebooks: Callable[[], Notebooks]
) -> None:
    pods = notebooks()
    for team, amounts in (("rich", quota(4)), ("poor", quota(0, limit=0)), ("borrower", quota(2))):
        policies.create(team, namespaceSelector={"matchLabels": {"team": team}}, flavors=amounts)
    label(world.api, world.jobs.namespace, "borrower")
    label(world.api, pods.namespace, "poor")
    observed = start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    pods.create()
    pods.wait_unschedulable()
    losses = Losses(world.api, world.jobs.namespace)
    label(world.api, world.jobs.namespace, None)
    policies.wait_row("borrower", USED=0)
    label(world.api, world.jobs.namespace, "borrower")
    policies.wait_row("borrower", USED=8)
    observed.see_passes(world)
    assert losses.names() == []
    assert observed.steps() == []
    label(world.api, pods.namespace, "rich")
    pods.wait_bound()
    world.wait_settled("toy", 7)
    policies.wait_row("rich", USED=1)
    assert len(losses.pods()) == 1

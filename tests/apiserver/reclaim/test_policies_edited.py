"""Policies change while jobs run and pods wait: what is wrong is told, and nobody loses a pod who need not."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed

pytestmark = pytest.mark.apiserver


def test_edits_and_deletions_cost_no_gpu_beside_a_waiting_pod(
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

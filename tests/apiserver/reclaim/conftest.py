"""Two nodes of four GPUs, a team that borrows, and the team that owns what it borrows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.apiserver.faults.lab import FakeKubelets, World
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Notebooks


@pytest.fixture
def world(api: httpx.Client, jobs: Jobs) -> Iterator[World]:
    """The borrowers' jobs, and the nodes."""
    with FakeKubelets(api, 4).running() as kubelets:
        yield World(jobs, kubelets)


@pytest.fixture
def owner(policies: Policies, world: World, new_namespace: Callable[[], Jobs]) -> Notebooks:
    """The pods of a team to which four GPUs are guaranteed; two are to the borrowers."""
    theirs = new_namespace()
    policies.create("borrower", namespaces=[world.jobs.namespace], flavors=quota(2))
    policies.create("owner", namespaces=[theirs.namespace], flavors=quota(4))
    return Notebooks(world.api, theirs.namespace)

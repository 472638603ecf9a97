"""A webhook beside the API server, and namespaces to put obstacles into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from devcluster.cluster import Cluster
from tests.apiserver.admission.obstacles import JUDGES
from tests.apiserver.admission.place import Place
from tests.apiserver.admission.webhook import Webhook, serving


@pytest.fixture
def webhook(cluster: Cluster, tmp_path: Path) -> Iterator[Webhook]:
    """A webhook that the API server reaches."""
    with serving(cluster, tmp_path, JUDGES) as running:
        yield running


@pytest.fixture
def places(
    api: httpx.Client,
    webhook: Webhook,
    pool: list[str],  # noqa: ARG001 - it only has to be there
) -> Iterator[Callable[[], Place]]:
    """Makes namespaces."""
    opened: list[Place] = []

    def make() -> Place:
        opened.append(Place(api, webhook).open())
        return opened[-1]

    yield make
    for place in opened:
        place.close()

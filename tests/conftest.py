"""How thorough the property tests are: 100 cases each, the same ones every time, so that a change is judged by its own
merits; 5,000 random ones in `make test-long`, which is where new failures are looked for. And which tests share a
cluster, so that one worker runs them all, and which come first, so that no worker is left alone with them.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("default"), max_examples=5000, derandomize=False)
settings.load_profile("default")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests that take a minute come first, then those with many; xdist's own order knows the latter only."""
    lengthy = {item.path for item in items if item.get_closest_marker("lengthy")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in lengthy, -tests[item.path]))


class ByFolder(LoadScopeScheduling):
    """All tests of a folder go to the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0].rpartition("/")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The groups of --dist loadgroup are folders. xdist's own, by mark, are lost on pytest 9, where ids are fixed."""
    return ByFolder(config, log) if config.getvalue("dist") == "loadgroup" else None

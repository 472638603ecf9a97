"""Configures the property tests, and adds to pytest (`tests/kit`): the order, the second try, the times, the parts.

Each property has 100 cases, the same ones in every run, so that a red run is the fault of the change. `make test-long`
searches for new failures with 5,000 random cases.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from devcluster import binaries
from tests.kit import complete, order, parts, quarantine, retry, times

settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("default"), max_examples=5000, derandomize=False)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that the Makefile uses."""
    retry.add_option(parser)
    parser.addoption("--whole-tree", action="store_true", help="refuse to run where a test file was not collected")
    parser.addoption("--record-times", action="store_true", help="write the seconds of each file to tests/times.json")
    parser.addoption(
        "--kubernetes",
        default=binaries.DEFAULT_KUBERNETES,
        metavar="RELEASE",
        help=f"the release of Kubernetes of all clusters: {', '.join(binaries.KUBERNETES)}",
    )
    parser.addoption("--record-green", metavar="PARTS", help="write to tests/green.json which of these parts passed")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins of the main process; xdist's workers only report which failures are waits."""
    retry.configure(config)
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(times.Recorder(config))
    if names := config.getoption("--record-green"):
        config.pluginmanager.register(parts.Recorder(config, names.split(",")))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Check and sort the tests before marks deselect any."""
    if session.config.getoption("--whole-tree"):
        complete.check(session, items)
        if missing := parts.without_part(items):
            raise pytest.UsageError(f"extended tests without a part in tests/parts.toml: {', '.join(missing)}")
    if names := session.config.getoption("--record-green"):
        parts.select(session.config, items, names.split(","))
    quarantine.apply(items, quarantine.load())
    order.sort(items, session.config.rootpath)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Make the scheduler with the groups of --dist loadgroup."""
    return order.ByGroup(config, log) if config.getvalue("dist") == "loadgroup" else None

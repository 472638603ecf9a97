"""Async tests of this folder run in virtual time, but for those that are marked."""

from tests.cluster_unit.fake_api import fake_api as fake_api
from tests.cluster_unit.fake_api import plain_session as plain_session
from tests.kit.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories

"""Async tests of this folder run in virtual time."""

from tests.kit.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories

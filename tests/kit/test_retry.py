"""A failed test is retried only in the described case. Each case is a separate run of pytest."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.processes

CONFTEST = """
from tests.kit import retry

def pytest_addoption(parser):
    retry.add_option(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "apiserver: real")
    retry.configure(config)
"""
WAIT = """
import pathlib, pytest
from tests.kit.wait import WaitRanOutError

def fail_at_first(name, error):
    mark = pathlib.Path(name)
    if not mark.exists():
        mark.touch()
        raise error
"""
A_WAIT_RAN_OUT_ONCE = f"""{WAIT}
@pytest.mark.apiserver
def test_slow():
    fail_at_first("slow", WaitRanOutError("the first failure"))
"""


@pytest.fixture
def run(pytester: pytest.Pytester, request: pytest.FixtureRequest):
    pytester.makeconftest(CONFTEST)
    pytester.makeini(f"[pytest]\npythonpath = {request.config.rootpath}\naddopts = -p no:randomly")

    def run_file(text: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess("--retry-a-wait", *args, timeout=60)

    return run_file


@pytest.mark.parametrize("args", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_a_wait_that_ran_out_is_tried_once_more_and_the_first_failure_is_printed(run, args):
    result = run(A_WAIT_RAN_OUT_ONCE, *args)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*tried once more, alone*", "*a wait ran out in*test_slow*", "*the first failure*"])
    result.stdout.fnmatch_lines(["*1 retried*"])


def test_a_wait_that_runs_out_twice_is_red(run):
    result = run(f'{WAIT}\n@pytest.mark.apiserver\ndef test_slow():\n    raise WaitRanOutError("never comes")')
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_failed_assertion_about_a_state_is_never_tried_again(run):
    result = run(f'{WAIT}\n@pytest.mark.apiserver\ndef test_state():\n    fail_at_first("state", AssertionError())')
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("*tried once more*")


def test_a_wait_of_a_test_that_is_not_marked_real_is_never_tried_again(run):
    result = run(f'{WAIT}\ndef test_unmarked():\n    fail_at_first("unmarked", WaitRanOutError())')
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("*tried once more*")


def test_two_waits_that_ran_out_make_the_run_red(run):
    another = '\n@pytest.mark.apiserver\ndef test_other():\n    fail_at_first("other", WaitRanOutError())'
    result = run(A_WAIT_RAN_OUT_ONCE + another)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("*tried once more*")


def test_a_wait_that_ran_out_beside_another_failure_stays_red(run):
    result = run(A_WAIT_RAN_OUT_ONCE + "\ndef test_broken():\n    assert False")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("*tried once more*")


def test_a_fixture_whose_wait_ran_out_is_tried_again_too(run):
    fixture = '\n@pytest.fixture\ndef place():\n    fail_at_first("place", WaitRanOutError())\n'
    result = run(f"{WAIT}{fixture}\n@pytest.mark.apiserver\ndef test_in_it(place):\n    pass")
    assert result.ret == pytest.ExitCode.OK

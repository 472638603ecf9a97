"""One second try for one test whose wait ran out.

A test of real processes may meet a machine that stands still for a minute. So where exactly one test of a run failed,
and what failed was a wait (`WaitRanOutError`), it is run again, alone, when all others have ended. Everything else
stays red: a failed assertion about a state, because it shows what is wrong, and two such tests, because a race that
loses in one run of twenty would hide behind a try for each. The first failure is printed whole all the same.

pytest-rerunfailures tries again at once, beside the load that made the test fail, and has no limit for a run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.kit.wait import WaitRanOutError

REAL = ("processes", "programs", "apiserver", "cluster")
"""Marks of tests that depend on a real clock."""
RAN_OUT = "wait_ran_out"


def add_option(parser: pytest.Parser) -> None:
    """The option that turns it on; the second try is a run without it."""
    parser.addoption("--retry-a-wait", action="store_true", help="try one test whose wait ran out once more, alone")


def configure(config: pytest.Config) -> None:
    """Turn it on where it is asked for."""
    if config.getoption("--retry-a-wait"):
        config.pluginmanager.register(RetryOnce(config))


class RetryOnce:
    """The plugin: workers say which failures are waits, the run's own process tries again."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.retried: list[pytest.TestReport] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Note in the report that the wait of a real-time test ran out."""
        report = yield
        is_real = any(item.get_closest_marker(mark) for mark in REAL)
        if is_real and call.excinfo and isinstance(call.excinfo.value, WaitRanOutError):
            report.user_properties.append((RAN_OUT, True))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Try again what may be tried again; runs after xdist's workers have ended, before the summary."""
        if hasattr(self.config, "workerinput"):
            return
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        failed = [*terminal.stats.get("failed", []), *terminal.stats.get("error", [])]
        if len(failed) == 1 and (RAN_OUT, True) in failed[0].user_properties and self._passes_alone(failed[0].nodeid):
            for outcome in ("failed", "error"):
                terminal.stats.pop(outcome, None)
            terminal.stats["retried"] = self.retried = failed
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The first failure, whole."""
        for report in self.retried:
            terminalreporter.section(f"a wait ran out in {report.nodeid}; alone it passed")
            report.toterminal(terminalreporter._tw)

    def _passes_alone(self, nodeid: str) -> bool:
        print(f"\n\nA wait ran out in one test: it is tried once more, alone.\n  {nodeid}", flush=True)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", nodeid]
        return subprocess.run(command, cwd=self.config.invocation_params.dir, check=False).returncode == 0

"""Retries one test whose wait ran out, once.

A test of real processes may run on a machine that stalls for a minute. So if exactly one test of a run failed, and it
failed in a wait (`WaitRanOutError`), it runs again, alone, when all others have ended. Everything else stays red: a
failed assertion about a state, because it shows a defect, and two such tests, because retries for each would hide a
race that fails in one run of twenty. The first failure is still printed completely.

pytest-rerunfailures retries at once, under the load that made the test fail, and has no limit for a run.
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
    """Add the option that enables the retry; the second try is a run without it."""
    parser.addoption("--retry-a-wait", action="store_true", help="try one test whose wait ran out once more, alone")


def configure(config: pytest.Config) -> None:
    """Enable the retry if the option is set."""
    if config.getoption("--retry-a-wait"):
        config.pluginmanager.register(RetryOnce(config))


class RetryOnce:
    """The plugin: workers report which failures are waits, the main process retries."""

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
        """Retry a test if that is allowed, after xdist's workers have ended and before the summary."""
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
        """Print the first failure completely."""
        for report in self.retried:
            terminalreporter.section(f"a wait ran out in {report.nodeid}; alone it passed")
            report.toterminal(terminalreporter._tw)

    def _passes_alone(self, nodeid: str) -> bool:
        print(f"\n\nA wait ran out in one test: it is tried once more, alone.\n  {nodeid}", flush=True)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", nodeid]
        return subprocess.run(command, cwd=self.config.invocation_params.dir, check=False).returncode == 0

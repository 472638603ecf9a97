"""The quarantine is short, and each entry expires."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.kit import quarantine
from tests.kit.quarantine import DAYS, ENTRIES, Entry

TODAY = datetime.date(2026, 3, 20)


def entry(days: int) -> Entry:
    return Entry("tests/a.py::test_a", TODAY - datetime.timedelta(days=days), "a race")


def test_the_list_keeps_to_its_rules():
    assert not quarantine.wrong(quarantine.load(), today=datetime.datetime.now(datetime.UTC).date())


def test_each_entry_names_a_file_that_is_there():
    root = Path(__file__).parents[2]
    assert all((root / entry.test.partition("::")[0]).exists() for entry in quarantine.load())


def test_an_entry_expires():
    assert not quarantine.wrong([entry(DAYS)], today=TODAY)
    assert quarantine.wrong([entry(DAYS + 1)], today=TODAY)


def test_an_entry_cannot_be_dated_ahead():
    assert quarantine.wrong([entry(-1)], today=TODAY)


def test_there_are_few():
    assert not quarantine.wrong([entry(1)] * ENTRIES, today=TODAY)
    assert quarantine.wrong([entry(1)] * (ENTRIES + 1), today=TODAY)


def test_a_quarantined_test_runs_is_shown_and_does_not_block(pytester: pytest.Pytester, request):
    pytester.makeconftest(
        "import datetime\n"
        "from tests.kit import quarantine\n"
        "LIST = [quarantine.Entry('test_it.py::test_flaky', datetime.date(2026, 3, 1), 'a race')]\n"
        "def pytest_collection_modifyitems(items):\n"
        "    quarantine.apply(items, LIST)\n"
    )
    pytester.makeini(f"[pytest]\npythonpath = {request.config.rootpath}")
    pytester.makepyfile(test_it="def test_flaky():\n    assert False\n")
    result = pytester.runpytest_subprocess("-rx")
    result.stdout.fnmatch_lines(["XFAIL*test_flaky*a race*"])
    assert result.ret == pytest.ExitCode.OK

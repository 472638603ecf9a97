"""The recorded times stay within the budget."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit import times

ROOT = Path(__file__).parents[2]


def test_the_recorded_times_are_within_the_budget():
    assert not times.over_budget(times.load())


def test_no_recorded_file_is_gone():
    gone = [path for path in times.load().seconds if not (ROOT / path).exists()]
    assert not gone, "renew the record: make times"


def test_a_test_and_a_run_over_the_budget_are_named(tmp_path):
    seconds = {"tests/a.py::test_long": 91.0, "tests/a.py::test_short": 0.1}
    record = times.record(seconds, {**seconds, "tests/a.py::test_long": 61.0}, minutes=20.4)
    assert record["files"] == {"tests/a.py": {"seconds": 91.1, "tests": 2, "slow": {"test_long": 61.0}}}
    file = tmp_path / "times.json"
    file.write_text(json.dumps(record))
    assert [words.split()[0] for words in times.over_budget(times.load(file))] == ["tests/a.py::test_long", "`make"]

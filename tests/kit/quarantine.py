"""Flaky tests in quarantine: they run and are shown, and do not block. See tests/quarantine.toml."""

from __future__ import annotations

import datetime
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "quarantine.toml"
DAYS = 14
ENTRIES = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """A test's node id, the first day in quarantine, and the reason."""

    test: str
    since: datetime.date
    why: str


def load(file: Path = FILE) -> list[Entry]:
    """All entries."""
    return [Entry(**entry) for entry in tomllib.loads(file.read_text()).get("entries", [])]


def apply(items: list[pytest.Item], entries: list[Entry]) -> None:
    """Mark the listed tests as non-strict `xfail`, which shows both results."""
    listed = {entry.test: entry for entry in entries}
    for item in items:
        if entry := listed.get(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=f"quarantined since {entry.since}: {entry.why}", strict=False))


def wrong(entries: list[Entry], *, today: datetime.date) -> list[str]:
    """A sentence for each violation of the list's rules."""
    found = [
        f"{entry.test} has been in quarantine since {entry.since}, for more than {DAYS} days: mend or delete it"
        for entry in entries
        if (today - entry.since).days > DAYS
    ]
    found += [f"{entry.test}: since={entry.since} is not yet: write today" for entry in entries if entry.since > today]
    if len(entries) > ENTRIES:
        found.append(f"{len(entries)} tests are in quarantine, of {ENTRIES} that may be: mend one first")
    return found

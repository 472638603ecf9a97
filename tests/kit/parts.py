"""The parts of `make test-all`: their tests, the code that these depend on, and their last green runs.

`make test` runs for each change; tests marked `extended` do not. So that they stay green, each belongs to a part
(tests/parts.toml). A green run of a part is recorded (tests/green.json) with its commit. `.ci/run` runs the parts whose
code has changed since, for at most half an hour, and `make check` fails if there were ten commits or more.

    python -m tests.kit.parts run [PART ...]    all parts, or the named ones; without retries, in random order
    python -m tests.kit.parts touched           the parts whose code has changed since their last green run
    python -m tests.kit.parts list              the parts that `touched` would run, and why
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "parts.toml"
GREEN = ROOT / "tests" / "green.json"
COMMITS = 10
"""After this many changes of its code, the last green run of a part does not count."""
MINUTES = 30.0
"""The time that `.ci/run` spends on parts, in minutes of one worker."""
UNKNOWN_MINUTES = 5.0
"""The assumed time of a part without a record, in minutes."""


@dataclass(frozen=True, slots=True)
class Part:
    """Files or folders of tests, and the files or folders whose changes require them. `alone`: never in parallel."""

    name: str
    tests: tuple[str, ...]
    code: tuple[str, ...]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Green:
    """The last green run of a part: its commit and day, the number of tests, and minutes of one worker."""

    commit: str
    day: str
    tests: int
    minutes: float


def load(file: Path = FILE) -> list[Part]:
    """All parts."""
    table = tomllib.loads(file.read_text())
    return [
        Part(name, tuple(part["tests"]), tuple(part["code"]), part.get("alone", False)) for name, part in table.items()
    ]


def greens(file: Path = GREEN) -> dict[str, Green]:
    """The last green run of each part that has one."""
    return {name: Green(**run) for name, run in json.loads(file.read_text()).items()} if file.exists() else {}


def part_of(path: str, parts: Iterable[Part]) -> str | None:
    """The part of a test file: the one with the longest path that contains the file."""
    below = [
        (len(start), part.name)
        for part in parts
        for start in part.tests
        if path == start or path.startswith(f"{start}/")
    ]
    return max(below)[1] if below else None


def commits_since(green: Green | None, part: Part, *, root: Path = ROOT) -> int | None:
    """The number of later changes of the part's code or tests: commits of the main line, where a merge counts as one.

    None if the part was never green, or if its commit is unknown here.
    """
    if green is None:
        return None
    command = ["git", "rev-list", "--count", "--first-parent", f"{green.commit}..HEAD", "--", *part.code, *part.tests]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return int(answer.stdout) if answer.returncode == 0 else None


def chosen(changed: dict[str, int | None], known: dict[str, Green], *, minutes: float = MINUTES) -> list[str]:
    """The changed parts that fit into `minutes`, the oldest green runs first."""
    found: list[str] = []
    for name in sorted(changed, key=lambda name: -(COMMITS if changed[name] is None else changed[name] or 0)):
        taken = known[name].minutes if name in known else UNKNOWN_MINUTES
        if changed[name] != 0 and taken <= minutes:
            found.append(name)
            minutes -= taken
    return found


def stale(changed: dict[str, int | None]) -> list[str]:
    """A sentence for each part whose code has changed too often."""
    return [
        f"part {name!r} of `make test-all`: {_age(count)}; run `make test-all PARTS={name}` and commit {GREEN.name}"
        for name, count in changed.items()
        if count is None or count >= COMMITS
    ]


def _age(count: int | None) -> str:
    return "never seen green" if count is None else f"{count} commits since its last green run (limit: {COMMITS - 1})"


class Recorder:
    """The plugin of a run of whole parts, which records those without a failure as green."""

    def __init__(self, config: pytest.Config, names: list[str]) -> None:
        self.config, self.names, self.parts = config, names, load()
        self.minutes: dict[str, float] = dict.fromkeys(names, 0.0)
        self.tests: dict[str, int] = dict.fromkeys(names, 0)
        self.red: set[str] = set()
        self.commit = _head()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the test to its part."""
        name = part_of(report.nodeid.partition("::")[0], self.parts)
        if name in self.minutes:
            self.minutes[name] += report.duration / 60
            self.tests[name] += report.when == "call"
            if report.failed:
                self.red.add(name)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Print a line for each part, and write the record."""
        known = greens()
        terminalreporter.section("parts of make test-all")
        for name in self.names:
            finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and self.tests[name] > 0
            word = "red" if name in self.red else "green" if finished else "not finished"
            terminalreporter.write_line(f"{name:12} {word:6} {self.tests[name]:5} tests {self.minutes[name]:6.1f} min")
            if word == "green":
                known[name] = Green(self.commit, _today(), self.tests[name], round(self.minutes[name], 1))
        GREEN.write_text(json.dumps({name: _as_json(known[name]) for name in sorted(known)}, indent=1) + "\n")


def _as_json(green: Green) -> dict[str, Any]:
    return {"commit": green.commit, "day": green.day, "tests": green.tests, "minutes": green.minutes}


def _head() -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def without_part(items: Iterable[pytest.Item]) -> list[str]:
    """The files with extended tests that belong to no part."""
    parts = load()
    files = {item.nodeid.partition("::")[0] for item in items if item.get_closest_marker("extended")}
    return sorted(path for path in files if part_of(path, parts) is None)


def select(config: pytest.Config, items: list[pytest.Item], names: list[str]) -> None:
    """Leave out the tests of other parts, since the folder of one part may contain files of another."""
    parts = load()
    kept, others = [], []
    for item in items:
        (kept if part_of(item.nodeid.partition("::")[0], parts) in names else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def run(names: list[str], *words: str) -> int:
    """Run these parts together, then each `alone` one; return the exit code of the first failure."""
    parts = {part.name: part for part in load()}
    if unknown := [name for name in names if name not in parts]:
        sys.exit(f"there is no part {', '.join(unknown)}; write one of {', '.join(parts)}")
    together = [parts[name] for name in names if not parts[name].alone]
    groups = [together] if together else []
    groups += [[parts[name]] for name in names if parts[name].alone]
    return max(
        (subprocess.run(_command(group, words), cwd=ROOT, check=False).returncode for group in groups), default=0
    )


def _command(group: list[Part], words: tuple[str, ...]) -> list[str]:
    names = ",".join(part.name for part in group)
    spread = () if group[0].alone else ("-n", "3", "--dist", "loadgroup")
    paths = [path for part in group for path in part.tests]
    marks = "extended and not long"
    return [sys.executable, "-m", "pytest", "-m", marks, f"--record-green={names}", *spread, *words, *paths]


def _changed() -> dict[str, int | None]:
    known = greens()
    return {part.name: commits_since(known.get(part.name), part) for part in load()}


def _lines(changed: dict[str, int | None], names: list[str]) -> Iterator[str]:
    for name, count in changed.items():
        yield f"{'run ' if name in names else 'skip'} {name:12} {_age(count)}"


def main(command: str, *names: str) -> int:
    """The command line."""
    if command == "run":
        return run(list(names) or [part.name for part in load()])
    changed = _changed()
    wanted = chosen(changed, greens())
    print("\n".join(_lines(changed, wanted)), flush=True)
    return run(wanted, "--retry-a-wait", "-p", "no:randomly") if command == "touched" else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

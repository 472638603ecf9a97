"""The fault matrix of docs/reliability.md as data, and the command that runs each row's test.

`python -m tests.docs.reliability` renews the column of commands from the tests' marks.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "docs" / "reliability.md"
SOAK = re.compile("<!-- soak: begin -->.*<!-- soak: end -->", re.DOTALL)
"""Its figures are tables too."""
LINK = re.compile(r"^\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)( [¹²³])?$")
HEADS = ["fault", "what was done", "what the user saw", "what was lost", "test", "run by"]
GATE, REST = "`make test`", "`make test-all`"


@dataclass(frozen=True)
class Row:
    """A fault of the matrix."""

    cells: tuple[str, ...]

    @property
    def fault(self) -> str:
        """What happens; a row that begins with "..." goes on where the one before ended."""
        return self.cells[0]

    @property
    def test(self) -> tuple[str, str, str]:
        """Its test's name, file and mark."""
        found = LINK.match(self.cells[4])
        assert found, f"{self.fault}: not a test: {self.cells[4]}"
        return found[1], found[2], (found[3] or "").strip()

    @property
    def key(self) -> str:
        """The test as pytest names it, without parameters."""
        name, path, _ = self.test
        return f"{path}::{name}"


def rows(page: str) -> list[Row]:
    """All rows of the page's matrices."""
    lines = [line for line in SOAK.sub("", page).splitlines() if line.startswith("| ")]
    return [row for row in map(_row, lines) if list(row.cells) != HEADS]


def _row(line: str) -> Row:
    return Row(tuple(cell.strip() for cell in line.strip("|").split("|")))


def in_the_gate(files: Iterable[str]) -> set[str]:
    """The tests of these files, without parameters, that `make test` runs."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not (extended or long)", *sorted(files)]
    answer = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return {line.partition("[")[0] for line in answer.stdout.splitlines() if "::" in line}


def commands(found: list[Row]) -> dict[str, str]:
    """The command that runs each test."""
    gate = in_the_gate({row.test[1] for row in found})
    return {row.key: GATE if row.key in gate else REST for row in found}


def renewed(page: str) -> str:
    """The page with the column of commands as the tests' marks say."""
    wanted = commands(rows(page))

    def line(text: str) -> str:
        row = _row(text) if text.startswith("| ") else None
        if row is None or len(row.cells) < len(HEADS) - 1 or not LINK.match(row.cells[4]):
            return text
        return f"| {' | '.join((*row.cells[:5], wanted[row.key]))} |"

    return "\n".join(line(text) for text in page.split("\n"))


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text()))

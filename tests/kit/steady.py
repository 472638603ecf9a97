"""`make steady`: runs the changed real-time tests twenty times, parallel to two busy loops. Red if one run is.

A test that passes here may still fail once in a hundred runs, but hardly once in ten.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.parts import ROOT
from tests.kit.retry import REAL

ROUNDS = 20
BUSY_LOOPS = 2
NO_TESTS_COLLECTED = 5


def changed_files(base: str) -> list[str]:
    """The test files that differ from `base`, untracked ones included."""
    differing = _git("diff", "--name-only", "--diff-filter=d", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({path for path in (*differing, *new) if path.startswith("tests/") and "/test_" in path})


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@contextmanager
def busy() -> Iterator[None]:
    """Run busy loops within this context."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rounds(files: list[str], count: int) -> int:
    """The number of red runs; stops if there is nothing to run."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", f"({' or '.join(REAL)}) and not long", *files]
    red = 0
    for number in range(1, count + 1):
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code == NO_TESTS_COLLECTED:
            print("no real-time test among the changed files")
            return 0
        red += code != 0
        print(f"round {number} of {count}: {red} red so far", flush=True)
    return red


def main() -> int:
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--base", default="HEAD", help="the commit to compare with (HEAD: what is not committed yet)")
    words.add_argument("--rounds", type=int, default=ROUNDS)
    words.add_argument("files", nargs="*", help="these files instead of the changed ones")
    given = words.parse_args()
    files = given.files or changed_files(given.base)
    if not files:
        print(f"no test file differs from {given.base}")
        return 0
    with busy():
        return min(rounds(files, given.rounds), 1)


if __name__ == "__main__":
    sys.exit(main())

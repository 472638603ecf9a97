"""A PATH with nothing on it but a few of Debian's basic programs, and stand-ins for those that a test is about."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BASIC = ("bash", "cat", "env", "expand", "grep", "ls", "make", "mkdir", "rm", "sed", "sh", "sleep", "unshare")
# The virtual environment is there: what is missing on the machine is missing outside of it.
UV = f"""#!/bin/sh
[ "$1" = run ] || exit 0
shift 3
exec {sys.executable} "$@"
"""


class StandIns:
    """`folder` is all of PATH. Each stand-in is a shell script, and writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls = folder / "bin", folder / "calls"
        self._cache = folder / "cache"
        self.folder.mkdir()
        for program in BASIC:
            found = shutil.which(program)
            assert found, program
            (self.folder / program).symlink_to(found)

    def add(self, program: str, script: str) -> None:
        """`script` is run in the place of `program`."""
        file = self.folder / program
        file.write_text(f'#!/bin/sh\necho "{program} $*" >>{self._calls}\n{script}\n')
        file.chmod(0o755)

    def calls(self) -> list[str]:
        """The command lines of all stand-ins so far, in their order."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def environment(self) -> dict[str, str]:
        """With this PATH, and a cache that is empty."""
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG")}
        return kept | {"PATH": str(self.folder), "XDG_CACHE_HOME": str(self._cache)}

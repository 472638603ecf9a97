"""The section of the changelog, from the commits since the last tag: git-cliff, with the rules of cliff.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from devcluster import shell
from release import archives

RULES = Path(__file__).parent / "cliff.toml"


def section(repository: Path, version: str, *, epoch: int) -> str:
    """What has changed since the newest tag vX.Y.Z; since the beginning, where there is none. Its date is `epoch`'s."""
    program = Path(sys.executable).parent / "git-cliff"
    words = ("--config", RULES, "--repository", repository, "--unreleased", "--tag", f"v{version}", "--offline")
    return shell.run(program, *words, env=archives.environment(epoch)).strip() + "\n"

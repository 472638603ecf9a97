"""The program that the user wants to run."""

from __future__ import annotations

from string import Template
from typing import NamedTuple

SCRIPT = "script"
MODULE = "module"
COMMAND = "command"
STORE = "store"
"""Not a user's program, but the process that serves a torch TCPStore (see store.py)."""


class Program(NamedTuple):
    """A script (`python train.py`), a module (`python -m train`) or any command (torchrun's --no-python)."""

    kind: str
    target: str
    args: tuple[str, ...] = ()

    def of_process(self, local_rank: int) -> Program:
        """The program of that process: `${local_rank}`, torchrun's only macro, is replaced in the arguments."""
        return self._replace(args=tuple(Template(arg).safe_substitute(local_rank=local_rank) for arg in self.args))

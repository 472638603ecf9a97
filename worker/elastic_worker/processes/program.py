"""The program that the user wants to run."""

from __future__ import annotations

from typing import NamedTuple

SCRIPT = "script"
MODULE = "module"
COMMAND = "command"
STORE = "store"
"""Not a user's: the process that serves a torch TCPStore (see store.py)."""


class Program(NamedTuple):
    """A script (`python train.py`), a module (`python -m train`) or any command (torchrun's --no-python)."""

    kind: str
    target: str
    args: tuple[str, ...] = ()

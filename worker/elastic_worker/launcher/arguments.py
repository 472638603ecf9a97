"""The launcher's own command line, from the pod's spec.

python -m elastic_worker -- train.py --lr 0.1          the script and its arguments, with torchrun's flags if any
python -m elastic_worker --command -- bash launch.sh   a command that runs `torchrun train.py` at some point
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

COMMAND = "--command"


class ArgumentsError(ValueError):
    """The launcher's command line is invalid; the message says what to write."""


class Arguments(NamedTuple):
    """`words` is torchrun's command line, or the user's own command if `is_command`."""

    is_command: bool
    words: tuple[str, ...]


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the words after the program's name. Raises ArgumentsError."""
    words = list(argv)
    is_command = bool(words) and words[0] == COMMAND
    if is_command:
        words.pop(0)
    if words and words[0] == "--":
        words.pop(0)
    if not words:
        what = "the container's command" if is_command else "the script and its arguments in the container's args"
        raise ArgumentsError(f"there is nothing to run: write {what}")
    return Arguments(is_command, tuple(words))

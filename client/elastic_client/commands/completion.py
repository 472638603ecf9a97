"""`completion`: scripts with which a shell completes commands and flags."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

PROGRAM = "elastic"
VARIABLE = "_ELASTIC_COMPLETE"
FOR_KUBECTL = """\
#!/bin/sh
# Save this as kubectl_complete-elastic in a folder of PATH, and make it executable: `kubectl elastic` completes then.
COMP_WORDS="elastic $*" COMP_CWORD=$# _ELASTIC_COMPLETE=complete_bash elastic
echo :4
"""


class Shell(StrEnum):
    """The shells that complete commands, and kubectl, which runs a program for that."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    KUBECTL = "kubectl"


def prepare() -> None:
    """Let typer answer the scripts below. Its own flags for that would appear in every `--help`."""
    if VARIABLE in os.environ:
        completion_init()


def completion(shell: Annotated[Shell, typer.Argument(help="The program to complete.")]) -> None:
    """Print a script for completion: `source <(elastic completion bash)`."""
    if shell == Shell.KUBECTL:
        print(FOR_KUBECTL, end="")
    else:
        print(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value))

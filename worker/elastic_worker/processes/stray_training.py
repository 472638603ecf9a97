"""Finds training processes that a container's command starts by itself, instead of calling torchrun.

DeepSpeed's launcher, Composer and Lightning start the processes of their machine without torch's agent. In each pod of
a job they would form a separate group and train to its end, and only then would the pod fail. Such a process is found
by the variables that its parent, a python, has added to its environment (140). A script may export the same variables
and run other programs before the training, so children of a shell, and processes that start torchrun, do not count.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ..proc import PROC, stat_of

RANK = frozenset({"LOCAL_RANK", "WORLD_SIZE"})
"""All launchers of training processes set both."""
ACCELERATE = frozenset({"ACCELERATE_MIXED_PRECISION"})
"""`accelerate launch` sets it for a script that it starts without torch's agent, as for one process on one GPU."""
LEADS_TO_TORCHRUN = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate"}
REMEDY = "write `torchrun SCRIPT`, which starts them for the whole job"
FOR_ACCELERATE = (
    "give `accelerate launch` the option --multi_gpu, with which it calls torchrun, or write `torchrun SCRIPT`"
)
WAY_OUT = "Where it is no training process, set the variable in the pod template's env, too"
MOST_COMMAND = 200
"""Characters of a command line in the message."""
_PARENT_FIELD = 1


def find_fault(inherited: Mapping[str, str]) -> str:
    """Return the fault of the first such process among our descendants, in words; "" if there is none.

    `inherited` is the environment that all of them inherit: its variables show nothing.
    """
    for parent, pid in _descendants(os.getpid()):
        with suppress(OSError):
            fault = _fault_of(pid, parent, inherited)
            if fault:
                return fault
    return ""


def _fault_of(pid: int, parent: int, inherited: Mapping[str, str]) -> str:
    if not (_is_python(pid) and _is_python(parent)):
        return ""
    added = _names(pid) - _names(parent) - inherited.keys()
    command = _words(pid, "cmdline")
    from_accelerate = any(_program(word) == "accelerate" for word in _words(parent, "cmdline"))
    if added >= RANK:
        sign, remedy = "LOCAL_RANK", REMEDY
    elif added >= ACCELERATE and from_accelerate:
        (sign,), remedy = ACCELERATE, FOR_ACCELERATE
    else:
        return ""
    if any(_program(word) in LEADS_TO_TORCHRUN for word in command):
        return ""
    return (
        f"the container's command started a training process by itself ({' '.join(command)[:MOST_COMMAND]}; {sign} is"
        f" set): each pod would train alone. In Elastic mode {remedy}. {WAY_OUT}"
    )


def _is_python(pid: int) -> bool:
    return (PROC / str(pid) / "exe").readlink().name.startswith("python")


def _names(pid: int) -> frozenset[str]:
    """Variables that the process was started with."""
    return frozenset(entry.partition("=")[0] for entry in _words(pid, "environ"))


def _program(word: str) -> str:
    """The name of a program or module in a command line, without its folder."""
    return word.rsplit("/", 1)[-1]


def _words(pid: int, name: str) -> list[str]:
    text = (PROC / str(pid) / name).read_bytes().decode(errors="replace")
    return [word for word in text.split("\0") if word]


def _descendants(ancestor: int) -> Iterator[tuple[int, int]]:
    """Yield (parent, pid) of each descendant, from one scan of all processes, which may include other containers'."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                children[int(stat_of(folder)[_PARENT_FIELD])].append(int(folder.name))
    pending = [(ancestor, pid) for pid in children[ancestor]]
    while pending:
        parent, pid = pending.pop()
        yield parent, pid
        pending.extend((pid, child) for child in children[pid])

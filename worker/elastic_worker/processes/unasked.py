"""Training processes that a container's command starts by itself, where it should call torchrun.

DeepSpeed's launcher, composer, mpirun and Lightning start the processes of their machine without torch's agent. In each
pod of a job they would form a group of their own and train to its end, and only then would the pod fail. Such a process
is known by a variable that launchers set for nothing else (140). Only pythons are looked at: before the training, nodes
may be checked with programs such as NCCL's tests under mpirun.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ..proc import PROC, stat_of

RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
ACCELERATE = "ACCELERATE_MIXED_PRECISION"
"""`accelerate launch` sets it for a script that it starts without torch's agent, as for one process on one GPU."""
REMEDY = "write `torchrun SCRIPT`, which starts them for the whole job"
FOR_ACCELERATE = (
    "give `accelerate launch` the option --multi_gpu, with which it calls torchrun, or write `torchrun SCRIPT`"
)
MOST_COMMAND = 200
"""Characters of a command line in the message."""
_PARENT_FIELD = 1


def look(own: Mapping[str, str]) -> str:
    """What is wrong with the first such process among our descendants, "" where there is none.

    `own` is the environment that all of them inherit: what stands there says nothing.
    """
    for pid in _descendants(os.getpid()):
        with suppress(OSError):
            told = _judge(pid, own)
            if told:
                return told
    return ""


def _judge(pid: int, own: Mapping[str, str]) -> str:
    if not (PROC / str(pid) / "exe").readlink().name.startswith("python"):
        return ""
    names = {entry.partition(b"=")[0].decode(errors="replace") for entry in _words(pid, "environ")}
    sign = next((name for name in (*RANKS, ACCELERATE) if name in names and name not in own), "")
    if not sign:
        return ""
    command = " ".join(word.decode(errors="replace") for word in _words(pid, "cmdline"))[:MOST_COMMAND]
    remedy = FOR_ACCELERATE if sign == ACCELERATE else REMEDY
    return (
        f"the container's command started a training process by itself ({command}; {sign} is set): each pod would train"
        f" alone. In Elastic mode {remedy}"
    )


def _words(pid: int, name: str) -> list[bytes]:
    return [word for word in (PROC / str(pid) / name).read_bytes().split(b"\0") if word]


def _descendants(ancestor: int) -> Iterator[int]:
    """From one look at all processes: other containers of the pod may be seen, too."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                children[int(stat_of(folder)[_PARENT_FIELD])].append(int(folder.name))
    left = children[ancestor]
    while left:
        pid = left.pop()
        yield pid
        left.extend(children[pid])

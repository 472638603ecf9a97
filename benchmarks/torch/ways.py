"""The ways to train, and the programs of each: by hand, and in pods of both of the operator's modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local import cards
from benchmarks.local.places import (
    HERE,
    LAUNCHER,
    Place,
    free_port,
    launcher_variables,
    torchrun_variables,
    write_membership,
)
from benchmarks.local.python import PYTHON, torch_environ
from benchmarks.torch.hardware import Hardware
from elastic_operator.build.wrapper import wrapped
from elastic_worker import contract

SCRIPTS = Path(__file__).with_name("scripts")
BY_HAND, TORCHRUN_MODE, ELASTIC_MODE = "by hand", "Torchrun mode", "Elastic mode"
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")


@dataclass(frozen=True, slots=True)
class Way:
    """The form of the training (`form`), and its starter (`started`). It is useful on `fewest` to `most` devices.

    In a mode each process has its own pod; with `in_one_pod` the script starts all in one pod. By hand there is one
    command for all processes, torchrun's if `by_torchrun`. `in_one_process`: one process has all devices.
    """

    form: str
    title: str
    script: str
    started: str = BY_HAND
    by_torchrun: bool = False
    in_one_pod: bool = False
    in_one_process: bool = False
    more: tuple[str, ...] = ()
    fewest: int = 1
    most: int = 1_000_000

    @property
    def name(self) -> str:
        """The name for programs and on the command line."""
        return self.form if self.started == BY_HAND else f"{self.form}_{self.started.split()[0].lower()}"

    @property
    def is_library(self) -> bool:
        """Whether the script uses the library, which saves to a folder."""
        return self.form == "library"


WAYS = {
    way.name: way
    for way in (
        Way("single", "one device", "single.py", most=1),
        Way("data_parallel", "DataParallel", "data_parallel.py", in_one_process=True, fewest=2),
        Way("ddp", "DDP, torchrun", "ddp.py", by_torchrun=True),
        Way("ddp", "DDP", "ddp.py", TORCHRUN_MODE),
        Way("ddp", "DDP", "ddp.py", ELASTIC_MODE),
        Way("spawn", "DDP, mp.spawn", "spawn.py"),
        Way("spawn", "DDP, mp.spawn in one pod", "spawn.py", ELASTIC_MODE, in_one_pod=True),
        Way("amp", "DDP, mixed precision, torchrun", "ddp.py", by_torchrun=True, more=("--amp",)),
        Way("amp", "DDP, mixed precision", "ddp.py", TORCHRUN_MODE, more=("--amp",)),
        Way("amp", "DDP, mixed precision", "ddp.py", ELASTIC_MODE, more=("--amp",)),
        Way("library", "the library", "with_library.py", ELASTIC_MODE),
    )
}


@dataclass(frozen=True, slots=True)
class Start:
    """One program to start."""

    name: str
    command: Sequence[str]
    environ: dict[str, str]


def why_not(way: Way, size: int, hardware: Hardware) -> str:
    """Why the way is not tried with that many devices here; "" if it is."""
    if way.in_one_process and not hardware.gpus:
        return "it splits batches among GPUs, and there is none"
    if hardware.gpus and size > len(hardware.gpus):
        return f"there are not {size} GPUs, and NCCL wants one for each process"
    return ""


def starts(way: Way, size: int, arguments: Sequence[str], *, folder: Path, hardware: Hardware) -> list[Start]:
    """All programs to start. In Elastic mode the membership that names the pods is written into `folder`."""
    script = [str(SCRIPTS / way.script), f"--processes={size}", *way.more, *arguments]
    seen = [gpu.uuid for gpu in hardware.gpus[:size]]
    if way.started == BY_HAND:
        torchrun = [*TORCHRUN, "--standalone", "--nproc-per-node", str(size)]
        command = [*(torchrun if way.by_torchrun else [PYTHON]), *script]
        return [Start(way.name, command, _environ(seen))]
    places = _places(1 if way.in_one_pod else size, folder)
    if way.started == ELASTIC_MODE:
        write_membership(places, number=1)
    return [_start(way, place, script, seen if way.in_one_pod else seen[i : i + 1]) for i, place in enumerate(places)]


def checkpoint_of(way: Way, folder: Path) -> Path:
    """The checkpoint of the script: a file, for the library a folder."""
    return folder / ("checkpoints" if way.is_library else "checkpoint.pt")


def _start(way: Way, place: Place, script: Sequence[str], gpus: Sequence[str]) -> Start:
    """One pod."""
    if way.started == ELASTIC_MODE:
        watched = None if way.is_library else checkpoint_of(way, place.folder)
        told = launcher_variables(place, checkpoint=watched)
        return Start(place.name, [PYTHON, str(LAUNCHER), "--", *script], _environ(gpus) | told)
    told = torchrun_variables(place) | {contract.ENV_LOCAL_ADDR: HERE}
    return Start(place.name, [*wrapped({"command": list(TORCHRUN)})["command"], *script], _environ(gpus) | told)


def _environ(gpus: Sequence[str]) -> dict[str, str]:
    return {**torch_environ(), cards.VISIBLE: ",".join(gpus)}


def _places(size: int, folder: Path) -> list[Place]:
    port = free_port()
    return [
        Place(
            folder=folder,
            index=index,
            uid=f"uid-{index}",
            port=port,
            status_port=free_port(),
            fewest=size,
            most=size,
        )
        for index in range(size)
    ]

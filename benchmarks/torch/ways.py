"""The ways to train, and how each is started: by hand, by torchrun, by the launcher of Elastic mode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rescale import systems
from benchmarks.rescale.job import free_port
from benchmarks.rescale.systems import LAUNCHER, PYTHON, SYSTEMS, Place
from benchmarks.torch.hardware import Hardware
from elastic_worker import contract

SCRIPTS = Path(__file__).with_name("scripts")
BY_HAND, TORCHRUN, ELASTIC = "by hand", "torchrun", "Elastic mode"


@dataclass(frozen=True, slots=True)
class Way:
    """`fewest` to `most` devices make sense for it. `system` is bench-rescale's name of it, if our launcher does it."""

    name: str
    title: str
    script: str
    starter: str
    fewest: int = 1
    most: int = 1_000_000
    more: tuple[str, ...] = ()
    system: str = ""


WAYS = {
    way.name: way
    for way in (
        Way("single", "one device", "single.py", BY_HAND, most=1),
        Way("data_parallel", "DataParallel", "data_parallel.py", BY_HAND, fewest=2),
        Way("ddp", "DDP, torchrun", "ddp.py", TORCHRUN),
        Way("spawn", "DDP, mp.spawn", "spawn.py", BY_HAND),
        Way("amp", "DDP, torchrun, mixed precision", "ddp.py", TORCHRUN, more=("--amp",)),
        Way("elastic", "DDP, Elastic mode", "ddp.py", ELASTIC, system="plain"),
        Way("library", "library, Elastic mode", "with_library.py", ELASTIC, system="library"),
    )
}


def why_not(way: Way, size: int, hardware: Hardware) -> str:
    """Why it is not tried with so many devices here; "" if it is."""
    if way.name == "data_parallel" and not hardware.gpus:
        return "it splits batches among GPUs, and there is none"
    if hardware.gpus and size > len(hardware.gpus):
        return f"there are not {size} GPUs, and NCCL wants one for each process"
    return ""


def command_of(way: Way, size: int, arguments: Sequence[str]) -> list[str]:
    """What is started, once for all of its processes."""
    script = [str(SCRIPTS / way.script), f"--processes={size}", *way.more, *arguments]
    starters = {
        BY_HAND: [PYTHON],
        TORCHRUN: [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)],
        ELASTIC: [PYTHON, str(LAUNCHER), "--"],
    }
    return [*starters[way.starter], *script]


def environ_of(way: Way, size: int, folder: Path) -> Mapping[str, str]:
    """Of what is started; one pod of so many processes in Elastic mode, whose wish is left in `folder`."""
    if way.starter != ELASTIC:
        gpus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(size)))}
        return {**systems.torch_environ(), **gpus}
    place = Place(
        folder=folder,
        index=0,
        uid="0-1",
        port=free_port(),
        status_port=free_port(),
        epoch=1,
        incarnation=1,
        busy=False,
    )
    wish = {"wish": 1, "members": [{"name": place.name, "uid": place.uid}], "min": 1, "max": 1}
    (folder / "wish").write_text(json.dumps(wish))
    return {**systems.environ_of(SYSTEMS[way.system], place), contract.ENV_NPROC: str(size)}

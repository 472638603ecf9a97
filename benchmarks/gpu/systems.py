"""How a pod is started: the operator's two modes with a plain script, and the library with either backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.machine import Machine
from benchmarks.local import cards, python
from benchmarks.local.places import HERE, LAUNCHER, Place, launcher_variables, torchrun_variables
from elastic_worker import contract

SCRIPT = Path(__file__).with_name("train.py")


@dataclass(frozen=True)
class System:
    """`backend` is the backend on GPUs; on a CPU each system uses gloo."""

    name: str
    words: str
    backend: str
    is_elastic: bool = True
    is_library: bool = False


SYSTEMS = (
    System("torchrun", "plain DDP, Torchrun mode", "nccl", is_elastic=False),
    System("elastic", "plain DDP, Elastic mode", "nccl"),
    System("library", "library, starts again", "nccl", is_library=True),
    System("in-place", "library, in place", "gloo", is_library=True),
)


def systems_of(machine: Machine) -> tuple[System, ...]:
    """The systems to measure. On a CPU the library has gloo only, which changes in place."""
    return tuple(each for each in SYSTEMS if machine.gpus or each.name != "library")


def backend_of(system: System, machine: Machine) -> str:
    """The backend of its processes."""
    return system.backend if machine.gpus else "gloo"


def command_of(system: System, machine: Machine, folder: Path) -> list[str]:
    """The command of the pod's first process. All pods of a job share `folder`."""
    options = ["--backend", backend_of(system, machine), *(["--library"] if system.is_library else [])]
    script = [str(SCRIPT), str(folder), *options]
    if system.is_elastic:
        return [machine.program, str(LAUNCHER), "--", *script]
    return [machine.program, "-m", "torch.distributed.run", *script]


def environ_of(system: System, machine: Machine, place: Place) -> dict[str, str]:
    """The environment of the pod's first process."""
    own = {"BENCH_POD": place.name, **_card(machine, place.index)}
    return {**python.environ(), **own, **_ours(system, place)}


def _ours(system: System, place: Place) -> Mapping[str, str]:
    if not system.is_elastic:
        return {**torchrun_variables(place), contract.ENV_LOCAL_ADDR: HERE}
    return launcher_variables(place, checkpoint=None if system.is_library else place.folder / "checkpoint.pt")


def _card(machine: Machine, index: int) -> Mapping[str, str]:
    number = len(machine.gpus)
    if not number:
        return {cards.VISIBLE: ""}
    card = cards.names(number)[index % number]
    together = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if machine.shares_a_card else {}
    return {cards.VISIBLE: card, **together}

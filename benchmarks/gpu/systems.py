"""How a pod is started: the operator's two modes with a plain script, and the library with either backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.machine import Machine
from elastic_operator.api.parse import parse_spec
from elastic_operator.build.environment import environment
from elastic_worker import contract

SCRIPT = Path(__file__).with_name("train.py")
LAUNCHER = Path(contract.__file__).with_name("__main__.py")
HERE, UID = "127.0.0.1", "gpu-report"


@dataclass(frozen=True)
class System:
    """`backend` is what it takes where there are GPUs; on a CPU each takes gloo."""

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
    """On a CPU the library has gloo only, which changes in place."""
    return tuple(each for each in SYSTEMS if machine.gpus or each.name != "library")


@dataclass(frozen=True)
class Place:
    """Where one pod is in its job: 0 is the master. Sizes in pods."""

    machine: Machine
    folder: Path
    index: int
    uid: str
    port: int
    status_port: int
    fewest: int
    most: int

    @property
    def role(self) -> str:
        """Master or worker."""
        return contract.ROLE_WORKER if self.index else contract.ROLE_MASTER

    @property
    def name(self) -> str:
        """As the operator names it."""
        return f"toy-{self.role}-{max(0, self.index - 1)}"


def backend_of(system: System, machine: Machine) -> str:
    """What its processes communicate by."""
    return system.backend if machine.gpus else "gloo"


def command_of(system: System, place: Place) -> list[str]:
    """What the pod's first process is."""
    options = ["--backend", backend_of(system, place.machine), *(["--library"] if system.is_library else [])]
    script = [str(SCRIPT), str(place.folder), *options]
    if system.is_elastic:
        return [place.machine.program, str(LAUNCHER), "--", *script]
    return [place.machine.program, "-m", "torch.distributed.run", *script]


def environ_of(system: System, place: Place) -> dict[str, str]:
    """Of the pod's first process."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ELASTIC_", "PET_"))}
    ours = _elastic(system, place) if system.is_elastic else _torchrun(place)
    common = {
        "BENCH_POD": place.name,
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **_card(place),
    }
    return {**kept, **common, **{key: str(value) for key, value in ours.items()}}


def _card(place: Place) -> Mapping[str, str]:
    cards = len(place.machine.gpus)
    if not cards:
        return {"CUDA_VISIBLE_DEVICES": ""}
    # The user's own choice may name others than the first ones, by number or by UUID.
    chosen = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    card = chosen[place.index % cards] if len(chosen) >= cards else str(place.index % cards)
    together = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if place.machine.shares_a_card else {}
    return {"CUDA_VISIBLE_DEVICES": card, **together}


def _torchrun(place: Place) -> dict[str, object]:
    """As the operator sets it."""
    container = {"name": contract.MAIN_CONTAINER, "image": "toy", "args": ["train.py"]}
    template = {"spec": {"containers": [container]}}
    body = {"minReplicas": place.fewest, "maxReplicas": place.most, "template": template}
    variables = environment(
        _Job(),
        parse_spec({"spec": body}),
        role=place.role,
        index=max(0, place.index - 1),
        incarnation=1,
        nnodes=(place.fewest, place.most),
        service_ip=HERE,
        port=place.port,
        gpu_resources=(),
    )
    told = {variable["name"]: variable["value"] for variable in variables if "value" in variable}
    return {**told, contract.ENV_LOCAL_ADDR: HERE}


def _elastic(system: System, place: Place) -> dict[str, object]:
    checkpoint = {} if system.is_library else {contract.ENV_CHECKPOINT_PATH: place.folder / "checkpoint.pt"}
    return {
        contract.ENV_JOB_UID: UID,
        contract.ENV_INCARNATION: 1,
        contract.ENV_POD_NAME: place.name,
        contract.ENV_POD_UID: place.uid,
        contract.ENV_LOCAL_ADDR: HERE,
        contract.ENV_ROLE: place.role,
        contract.ENV_INDEX: max(0, place.index - 1),
        contract.ENV_MASTER_EPOCH: 1,
        contract.ENV_TOKEN: "known to this job only",
        contract.ENV_MASTER_ADDR: HERE,
        contract.ENV_MASTER_PORT: place.port,
        contract.ENV_NPROC: 1,
        **checkpoint,
        contract.ENV_ALIGN_SECONDS: 60,
        contract.ENV_GRACE_SECONDS: 30,
        contract.ENV_WISH_FILE: place.folder / "wish",
        contract.ENV_STATUS_PORT: place.status_port,
        "TMPDIR": place.folder,
    }


@dataclass(frozen=True)
class _Job:
    namespace: str = "bench"
    name: str = "toy"
    uid: str = UID

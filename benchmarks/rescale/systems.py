"""How a pod is started: torchrun stock and as the operator tunes it, the launcher of Elastic mode, the library."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.rescale.loads import Load
from devcluster import torchtree
from devcluster.progress import Progress
from elastic_operator.api.parse import parse_spec
from elastic_operator.build.environment import environment
from elastic_operator.build.wrapper import wrapped
from elastic_worker import contract

# The torch tree is installed for the base image's Python, Debian's own.
PYTHON = "/usr/bin/python3.11"
SCRIPT = Path(__file__).with_name("train.py")
LIBRARY_SCRIPT = Path(__file__).with_name("train_library.py")
TOY = Path(__file__).with_name("toy.py")
LAUNCHER = Path(contract.__file__).with_name("__main__.py")
FEWEST, MOST = 2, 4
HERE = "127.0.0.1"
UID = "bench"


@dataclass(frozen=True, slots=True)
class System:
    """`limit` is how many seconds a change may take before it counts as never."""

    name: str
    is_elastic: bool = False
    is_tuned: bool = False
    is_warm: bool = True
    is_library: bool = False
    limit: float = 120.0

    @property
    def script(self) -> Path:
        """What it trains with."""
        return LIBRARY_SCRIPT if self.is_library else SCRIPT


SYSTEMS = {
    system.name: system
    for system in (
        System("stock"),
        System("tuned", is_tuned=True),
        System("plain", is_elastic=True),
        System("plain_cold", is_elastic=True, is_warm=False),
        System("library", is_elastic=True, is_library=True),
    )
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one pod is in its job: 0 is the master. `epoch` counts masters, `incarnation` starts of the whole job."""

    folder: Path
    index: int
    uid: str
    port: int
    status_port: int
    epoch: int
    incarnation: int
    load: Load

    @property
    def role(self) -> str:
        """Master or worker."""
        return contract.ROLE_WORKER if self.index else contract.ROLE_MASTER

    @property
    def name(self) -> str:
        """As the operator names it."""
        return f"toy-{self.role}-{max(0, self.index - 1)}"


def command_of(system: System, place: Place) -> list[str]:
    """What the pod's first process is."""
    script = [str(system.script), str(place.folder), *place.load.arguments]
    if system.is_elastic:
        return [PYTHON, str(LAUNCHER), "--", *script]
    torchrun = {"command": [PYTHON, "-m", "torch.distributed.run"]}
    return [*wrapped(torchrun)["command"], *script]


def environ_of(system: System, place: Place) -> dict[str, str]:
    """Of the pod's first process."""
    ours = _elastic(system, place) if system.is_elastic else _torchrun(system, place)
    return {**_clean(), **{key: str(value) for key, value in ours.items()}, "BENCH_POD": place.name}


def import_seconds() -> float:
    """What `import torch` takes in a new process, once the files are in memory."""
    program = "import time; t = time.monotonic(); import torch; print(time.monotonic() - t)"
    told = [subprocess.check_output([PYTHON, "-c", program], env=_clean(), text=True) for _ in range(2)]
    return float(told[-1])


def _torchrun(system: System, place: Place) -> dict[str, object]:
    stock: dict[str, object] = {
        contract.ENV_NNODES: f"{FEWEST}:{MOST}",
        contract.ENV_NPROC_PER_NODE: 1,
        contract.ENV_RDZV_BACKEND: "c10d",
        contract.ENV_RDZV_ID: f"{UID}-{place.incarnation}",
        # More than its default of 0, with which it could not change at all.
        contract.ENV_MAX_RESTARTS: 10,
        contract.ENV_RDZV_CONF: f"is_host={'false' if place.index else 'true'}",
    }
    tuned = _of_operator(place) if system.is_tuned else {}
    endpoint = {contract.ENV_RDZV_ENDPOINT: f"{HERE}:{place.port}", contract.ENV_LOCAL_ADDR: HERE}
    return {**stock, **tuned, **endpoint}


def _of_operator(place: Place) -> Mapping[str, str]:
    container = {"name": contract.MAIN_CONTAINER, "image": "toy", "args": ["train.py"]}
    template = {"spec": {"containers": [container]}}
    spec = parse_spec({"spec": {"minReplicas": FEWEST, "maxReplicas": MOST, "template": template}})
    variables = environment(
        _Job(),
        spec,
        role=place.role,
        index=max(0, place.index - 1),
        incarnation=place.incarnation,
        nnodes=(FEWEST, MOST),
        service_ip=HERE,
        port=place.port,
        gpu_resources=(),
    )
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def _elastic(system: System, place: Place) -> dict[str, object]:
    checkpoint = {} if system.is_library else {contract.ENV_CHECKPOINT_PATH: place.folder / "checkpoint.pt"}
    return {
        contract.ENV_JOB_UID: UID,
        contract.ENV_INCARNATION: place.incarnation,
        contract.ENV_POD_NAME: place.name,
        contract.ENV_POD_UID: place.uid,
        contract.ENV_LOCAL_ADDR: HERE,
        contract.ENV_ROLE: place.role,
        contract.ENV_INDEX: max(0, place.index - 1),
        contract.ENV_MASTER_EPOCH: place.epoch,
        contract.ENV_TOKEN: "known to this job only",
        contract.ENV_MASTER_ADDR: HERE,
        contract.ENV_MASTER_PORT: place.port,
        contract.ENV_NPROC: 1,
        contract.ENV_WARM: int(system.is_warm),
        **checkpoint,
        contract.ENV_ALIGN_SECONDS: 60,
        contract.ENV_GRACE_SECONDS: 30,
        contract.ENV_WISH_FILE: place.folder / "wish",
        contract.ENV_STATUS_PORT: place.status_port,
        "TMPDIR": place.folder,
    }


@cache
def _clean() -> dict[str, str]:
    """Of a process that finds torch, talks to loopback only, and computes on one core."""
    tree = str(torchtree.ensure(Progress()))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ELASTIC_", "PET_"))}
    return kept | {"PYTHONPATH": tree, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class _Job:
    namespace: str = "bench"
    name: str = "toy"
    uid: str = UID

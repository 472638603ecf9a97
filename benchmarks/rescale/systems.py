"""How a pod is started: torchrun stock and as the operator tunes it, the launcher of Elastic mode, the library."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local.places import HERE, LAUNCHER, UID, Place, launcher_variables, torchrun_variables
from benchmarks.local.python import PYTHON, torch_environ
from benchmarks.rescale.loads import Load
from elastic_operator.build.wrapper import wrapped
from elastic_worker import contract

SCRIPT = Path(__file__).with_name("train.py")
LIBRARY_SCRIPT = Path(__file__).with_name("train_library.py")
TOY = Path(__file__).with_name("toy.py")
FEWEST, MOST = 2, 4


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
        """The training script."""
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


def command_of(system: System, folder: Path, load: Load) -> list[str]:
    """The command of the pod's first process. All pods of a job share `folder`."""
    script = [str(system.script), str(folder), *load.arguments]
    if system.is_elastic:
        return [PYTHON, str(LAUNCHER), "--", *script]
    torchrun = {"command": [PYTHON, "-m", "torch.distributed.run"]}
    return [*wrapped(torchrun)["command"], *script]


def environ_of(system: System, place: Place) -> dict[str, str]:
    """The environment of the pod's first process."""
    ours = _elastic(system, place) if system.is_elastic else _torchrun(system, place)
    return {**torch_environ(), **{key: str(value) for key, value in ours.items()}, "BENCH_POD": place.name}


def import_seconds() -> float:
    """The seconds of `import torch` in a new process, once the files are in memory."""
    program = "import time; t = time.monotonic(); import torch; print(time.monotonic() - t)"
    told = [subprocess.check_output([PYTHON, "-c", program], env=torch_environ(), text=True) for _ in range(2)]
    return float(told[-1])


def _torchrun(system: System, place: Place) -> dict[str, object]:
    stock: dict[str, object] = {
        contract.ENV_NNODES: f"{place.fewest}:{place.most}",
        contract.ENV_NPROC_PER_NODE: 1,
        contract.ENV_RDZV_BACKEND: "c10d",
        contract.ENV_RDZV_ID: f"{UID}-{place.incarnation}",
        # More than its default of 0, with which it could not change at all.
        contract.ENV_MAX_RESTARTS: 10,
        contract.ENV_RDZV_ENDPOINT: f"{HERE}:{place.port}",
        contract.ENV_RDZV_CONF: f"is_host={'false' if place.index else 'true'}",
    }
    tuned = torchrun_variables(place) if system.is_tuned else {}
    return {**stock, **tuned, contract.ENV_LOCAL_ADDR: HERE}


def _elastic(system: System, place: Place) -> dict[str, object]:
    checkpoint = None if system.is_library else place.folder / "checkpoint.pt"
    return {**launcher_variables(place, checkpoint=checkpoint), contract.ENV_WARM: int(system.is_warm)}

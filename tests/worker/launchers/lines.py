"""The table of launch lines, and the folder in which each runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_worker import contract
from tests.worker.job.pod import PYTHON, REAL

HERE = Path(__file__).parent
TABLE = HERE / "lines.toml"
NOTES = HERE.parent / "trainers" / "notes.py"
PROGRAMS = {
    "torchrun": "torch.distributed.run:main",
    "accelerate": "accelerate.commands.accelerate_cli:main",
    "fabric": "lightning.fabric.cli:_main",
    "deepspeed": "deepspeed.launcher.runner:main",
    "train-plain": "plain:main",
}
"""Console scripts, by the functions that they call."""
LAUNCH_SH = """\
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
exec torchrun --nproc_per_node=${NPROC:-1} "$@"
"""
ACCELERATE_YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
main_training_function: main
mixed_precision: 'no'
num_machines: 2
num_processes: 2
rdzv_backend: static
same_network: true
use_cpu: false
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row; lines.toml says what its fields mean."""

    origin: str
    line: str
    checkpoint: str = "checkpoint.pt"
    complete: str = ""
    processes: int = 1
    packages: tuple[str, ...] = ()
    quick: bool = False
    not_used: tuple[str, ...] = ()
    told: str = ""
    code: int = contract.EXIT_DO_NOT_RETRY

    @property
    def activates(self) -> bool:
        """Whether it chooses a virtual environment itself, in an image that has another python first on PATH."""
        return "venv/bin" in self.line


def read() -> list[Line]:
    """All rows."""
    rows = tomllib.loads(TABLE.read_text())["line"]
    return [Line(**{"origin" if key == "from" else key: value for key, value in row.items()}) for row in rows]


def prepare(folder: Path, line: Line) -> dict[str, str]:
    """Put the scripts and a virtual environment into a new folder; gives the variables of an image that has it."""
    shutil.copytree(HERE / "scripts", folder)
    shutil.copy(NOTES, folder)
    (folder / "launch.sh").write_text(LAUNCH_SH)
    (folder / "accelerate.yaml").write_text(ACCELERATE_YAML)
    virtual_environment(folder / "venv", [REAL, *line.packages])
    own = str(Path(PYTHON).parent if line.activates else folder / "venv" / "bin")
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(folder)}
    return {**quiet, "PATH": os.pathsep.join([own, os.environ["PATH"]])}


def virtual_environment(folder: Path, trees: list[str]) -> None:
    """One with these trees' packages and their programs, as an installer makes it."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = [str(torchtree.ensure(Progress(quiet=True), tree=tree)) for tree in trees]
    (site / "trees.pth").write_text("\n".join([*paths, str(folder.parent)]))
    for name, target in PROGRAMS.items():
        module, _, function = target.partition(":")
        program = folder / "bin" / name
        program.write_text(
            f"#!{folder}/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        program.chmod(0o755)


def table(lines: list[Line]) -> str:
    """The rows as in docs/words.md."""
    rows = (f"| {line.origin} | `{line.line}` | {_outcome(line)} |\n" for line in lines)
    return "".join(["| from | the line | Elastic mode |\n|---|---|---|\n", *rows])


def _outcome(line: Line) -> str:
    if not line.told:
        return "works" if line.processes == 1 else f"works, {line.processes} processes in each pod"
    return f'does not: "{line.told}"'

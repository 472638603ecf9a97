"""The examples that are whole: a job, a script, a volume, and a README whose commands are run as they stand.

`tests/examples/test_grown_and_shrunk.py` runs them without a cluster, `tests/cluster/test_examples.py` on one.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from elastic_api.job import JobSpec
from elastic_api.template import nproc_of
from elastic_worker.contract import ROLE_WORKER
from tests.docs.pages import commands
from tests.examples.torchrun import EXAMPLES

IN_THE_IMAGE = (
    "elastic",
    "library",
    "digits-ddp",
    "digits-library",
    "spawn",
    "fsdp",
    "fsdp2",
    "snapshot",
    "collectives",
)
"""Those that need nothing but torch."""
WITH_TRAINERS = ("hugging-face",)
"""Those that need other people's packages, which the image of the local cluster does not have."""
NAMES = (*IN_THE_IMAGE, *WITH_TRAINERS)
EPOCHS = "1000"
"""How many epochs their manifests ask for: more than a test waits for."""
BY_HAND = ("python3 ", "torchrun ")
_EPOCH = re.compile(r"^(?:\[\w+\]:)?(?:epoch|step) (\d+) on (\d+) processes", re.MULTILINE)
"""Where a pod has several processes, the launcher and torchrun write before each line whose it is."""


def manifest(name: str) -> dict[str, Any]:
    """The job as it is in its file."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())
    return found


def spec_of(name: str) -> JobSpec:
    """What the operator reads of it."""
    return JobSpec.model_validate(manifest(name)["spec"])


def arguments(name: str, *, epochs: str = EPOCHS) -> list[str]:
    """The script and its arguments, with another number of epochs."""
    args = manifest(name)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args.count(EPOCHS) == 1
    return [epochs if word == EPOCHS else word for word in args]


def processes_of(name: str) -> int:
    """How many processes train in one pod: the script's own choice, or one for each GPU."""
    words = arguments(name)
    if "--processes" in words:
        return int(words[words.index("--processes") + 1])
    return nproc_of(spec_of(name), ROLE_WORKER)


def by_hand(name: str) -> list[str]:
    """The commands of its README that need no cluster."""
    return [line for line in commands(f"examples/{name}/README.md") if line.startswith(BY_HAND)]


def on_a_cluster(name: str) -> list[str]:
    """The others."""
    return [line for line in commands(f"examples/{name}/README.md") if not line.startswith(BY_HAND)]


def epochs_in(said: str) -> list[tuple[int, int]]:
    """What rank 0 has printed: each epoch, or step, and the number of processes that trained it."""
    return [(int(epoch), int(processes)) for epoch, processes in _EPOCH.findall(said)]

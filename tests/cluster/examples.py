"""The manifests of examples/ as they are, but for what a test must be quick about; and their scripts and volume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from demo.install import REPOSITORY
from tests.cluster.lab import Object, Team

FOLDER = REPOSITORY / "examples"
TRAIN = FOLDER / "toy" / "train.py"


def example(name: str, *, gpus: int | None = None, args: list[str] | None = None, **spec: Any) -> Object:
    """The job of an example with other sizes (`spec`), GPUs per pod, and arguments added to the script's."""
    job: Object = yaml.safe_load((FOLDER / name / "job.yaml").read_text())
    quick = {"gracePeriodSeconds": 10, "scaleUpDelaySeconds": 0}
    job["spec"] |= {"elasticity": {**job["spec"].get("elasticity", {}), **quick}, **spec}
    main = job["spec"]["template"]["spec"]["containers"][0]
    if gpus is not None:
        main["resources"]["limits"]["nvidia.com/gpu"] = gpus
    if args:
        main["args"] += args
    return job


def give_files(team: Team, name: str, **files: Path) -> None:
    """A ConfigMap of files, by the names they are to have there (`train_py` for train.py)."""
    options = [f"--from-file={key.replace('_', '.')}={path}" for key, path in files.items()]
    team.kubectl("create", "configmap", name, *options)


def give_volume(team: Team) -> Path:
    """The claim `checkpoints`; returns the folder of this machine that it leads to."""
    cluster = team.lab.cluster
    cluster.shared_claim(team.name)
    return cluster.layout.shared / f"{team.name}-checkpoints"

"""The manifests of examples/ as they are, but for what a test must be quick about; and their scripts and volume."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from demo.install import REPOSITORY
from tests.cluster.lab import IMPORT_SECONDS, Object, Team

FOLDER = REPOSITORY / "examples"
TRAIN = FOLDER / "toy" / "train.py"
ELASTIC = {"elastic": ["--steps", "5"], "library": ["--pause", "0.02"]}
"""The examples of Elastic mode, and what makes them quick; the second one uses the library."""
EPOCH = re.compile(r"^epoch (\d+) on (\d+) processes", re.MULTILINE)
STARTED = re.compile(r"\d+ processes started")


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


class Example:
    """An example of Elastic mode that runs, with so many epochs that no test sees the end."""

    def __init__(self, team: Team, name: str, *, pods: int) -> None:
        self.team, self.name = team, name
        give_files(team, f"{name}-script", train_py=FOLDER / name / "train.py")
        give_volume(team)
        team.apply(example(name, maxReplicas=pods, args=["--epochs", "100000", *ELASTIC[name]]))
        self.trains(pods)

    def epochs(self, pod: str = "master-0") -> list[tuple[int, int]]:
        """What rank 0 has said while it was in that pod: epochs and the number of processes that trained them."""
        return [(int(epoch), int(size)) for epoch, size in EPOCH.findall(self.team.logs(f"{self.name}-{pod}"))]

    def trains(self, pods: int, *, after: int = -1) -> None:
        """Until three epochs on end, later than that one, were trained by so many."""

        def last_three() -> list[int]:
            return [size for epoch, size in self.epochs() if epoch > after][-3:]

        self.team.wait(f"epochs on {pods} processes", lambda: last_three() == [pods] * 3, seconds=IMPORT_SECONDS)

    def loses(self, pod: str) -> int:
        """It ends without warning; returns the last epoch told until its successor had started its processes."""
        before = self.team.uids(self.name).values()
        self.team.delete_pod(pod, "--force", "--grace-period=0")

        def successor() -> list[str]:
            there = self.team.uids(self.name).items()
            return [name for name, uid in there if uid not in before and self.starts_of(name)]

        self.team.wait(f"a pod in place of {pod}", successor, seconds=IMPORT_SECONDS)
        return self.epochs()[-1][0]

    def starts_of(self, pod: str) -> int:
        """How often the pod's processes were started."""
        return len(STARTED.findall(self.team.logs(pod)))

    def costs(self) -> list[Object]:
        """The changes of its size, once it is known what each of them cost."""
        changes = [change for change in self.team.status(self.name)["history"] if change["from"] and change["to"]]
        return changes if all("pauseSeconds" in change for change in changes) else []

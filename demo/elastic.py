"""The main demo: a job of one to three pods on two nodes, one of them cordoned. It grows when the node is uncordoned,
shrinks when the node is drained, and trains all the time: first under torchrun, then in Elastic mode."""

from __future__ import annotations

import time
from pathlib import Path

import yaml
from rich.console import Console

from demo.costs import show_costs
from demo.install import REPOSITORY
from demo.journal import Epoch
from demo.kube import Kube
from demo.plot import svg_of
from demo.timeline import Timeline
from elastic_api.job import RuntimeMode

NAMESPACE = "demo"
JOB = "toy"
EXAMPLE = REPOSITORY / "examples" / "toy"
PANELS = {RuntimeMode.TORCHRUN: "Torchrun mode", RuntimeMode.ELASTIC: "Elastic mode"}


def run(kube: Kube, *, gpus: int, nodes: tuple[str, str], console: Console, picture: Path) -> None:
    """Run the scenario in each mode, and show its cost. Raises DemoError if the cluster does not behave as expected."""
    trainings: dict[RuntimeMode, list[Epoch]] = {}
    for mode, name in PANELS.items():
        console.rule(f"the job in {name}", align="left")
        trainings[mode] = _train(kube, mode, gpus=gpus, second=nodes[1], console=console)
    show_costs(console, {str(mode): epochs for mode, epochs in trainings.items()})
    title = f"One script on {gpus}, then {2 * gpus}, then {gpus} processes"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg_of({PANELS[mode]: epochs for mode, epochs in trainings.items()}, title=title))
    console.print(f"As a picture: {picture}")


def _train(kube: Kube, mode: RuntimeMode, *, gpus: int, second: str, console: Console) -> list[Epoch]:
    """Train on one node, on two, and on one again; return the epochs. In the end the job may have both nodes."""
    small, big = gpus, 2 * gpus
    _start_afresh(kube, second)
    kube.kubectl("apply", "-n", NAMESPACE, "-f", "-", input_text=manifest(mode, gpus))
    timeline = Timeline(kube, NAMESPACE, JOB, console)
    changed = " with runtime.mode: Elastic" if mode is RuntimeMode.ELASTIC else ""
    timeline.say(f"kubectl cordon {second}; kubectl apply -f examples/toy/job.yaml{changed}")
    timeline.until("training to start", world_size=small, more_epochs=5)
    timeline.say(f"kubectl uncordon {second}", style="bold")
    kube.kubectl("uncordon", second)
    timeline.until("the job to grow", world_size=big, more_epochs=5)
    timeline.say(f"kubectl drain {second}", style="bold")
    kube.kubectl("drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    timeline.until("the job to go on with what is left", world_size=small, more_epochs=5)
    kube.kubectl("uncordon", second)
    return timeline.epochs


def _start_afresh(kube: Kube, second: str) -> None:
    """Remove the job of an earlier run, and cordon the second node."""
    kube.kubectl("delete", "eptj", JOB, "-n", NAMESPACE, "--ignore-not-found", "--wait", "--timeout=120s")
    kube.kubectl("delete", "pods", "-n", NAMESPACE, "-l", f"elastic-pytorch.dev/job-name={JOB}", "--wait")
    script = kube.kubectl(
        *("create", "configmap", "toy-script", "-n", NAMESPACE, f"--from-file={EXAMPLE / 'train.py'}"),
        *("--dry-run=client", "-o", "yaml"),
    )
    kube.kubectl("apply", "-f", "-", input_text=script)
    kube.kubectl("cordon", second)


def manifest(mode: RuntimeMode, gpus: int) -> str:
    """The example in that mode, with this cluster's GPUs per pod and a new checkpoint: it begins at epoch 0."""
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    container = job["spec"]["template"]["spec"]["containers"][0]
    checkpoint = f"/checkpoints/{JOB}-{mode.lower()}-{time.time():.0f}.pt"
    container["args"][-1] = checkpoint
    container["resources"]["limits"]["nvidia.com/gpu"] = gpus
    if mode is RuntimeMode.ELASTIC:
        job["spec"]["runtime"] = {"mode": str(mode)}
        job["spec"]["elasticity"]["checkpointPath"] = checkpoint
    return yaml.safe_dump(job)

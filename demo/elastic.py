"""The main demo: a job of one to three pods on two nodes, one of them cordoned. It grows when the node is given back to
the cluster, shrinks when the node is drained, and trains all the while."""

from __future__ import annotations

import time

import yaml
from rich.console import Console

from demo.install import REPOSITORY
from demo.kube import Kube
from demo.plot import svg_of
from demo.timeline import Timeline
from devcluster import cache

NAMESPACE = "demo"
JOB = "toy"
EXAMPLE = REPOSITORY / "examples" / "toy"


def run(kube: Kube, *, gpus: int, nodes: tuple[str, str], console: Console) -> None:
    """The scenario; DemoError where the cluster does not do as told."""
    small, big = gpus, 2 * gpus
    _start_afresh(kube, nodes[1])
    kube.kubectl("apply", "-n", NAMESPACE, "-f", "-", input_text=_manifest(gpus))
    timeline = Timeline(kube, NAMESPACE, JOB, console)
    timeline.say(f"kubectl cordon {nodes[1]}; kubectl apply -f examples/toy/job.yaml")
    timeline.until("training to start", world_size=small, more_epochs=5)
    timeline.say(f"kubectl uncordon {nodes[1]}", style="bold")
    kube.kubectl("uncordon", nodes[1])
    timeline.until("the job to grow", world_size=big, more_epochs=5)
    timeline.say(f"kubectl drain {nodes[1]}", style="bold")
    kube.kubectl("drain", nodes[1], "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    timeline.until("the job to go on with what is left", world_size=small, more_epochs=5)
    kube.kubectl("uncordon", nodes[1])
    timeline.show_pauses()
    picture = cache.root() / "demo.svg"
    picture.write_text(svg_of(timeline.epochs, title=f"One job: {small}, then {big}, then {small} processes"))
    console.print(f"As a picture: {picture}")


def _start_afresh(kube: Kube, second: str) -> None:
    """No job of an earlier demo, and its second node not yet there."""
    kube.kubectl("delete", "eptj", JOB, "-n", NAMESPACE, "--ignore-not-found", "--wait", "--timeout=120s")
    kube.kubectl("delete", "pods", "-n", NAMESPACE, "-l", f"elastic-pytorch.dev/job-name={JOB}", "--wait")
    script = kube.kubectl(
        *("create", "configmap", "toy-script", "-n", NAMESPACE, f"--from-file={EXAMPLE / 'train.py'}"),
        *("--dry-run=client", "-o", "yaml"),
    )
    kube.kubectl("apply", "-f", "-", input_text=script)
    kube.kubectl("cordon", second)


def _manifest(gpus: int) -> str:
    """The example, with this cluster's GPUs per pod and a checkpoint of its own: each demo begins at epoch 0."""
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [word.replace("toy.pt", f"toy-{time.time():.0f}.pt") for word in container["args"]]
    container["resources"]["limits"]["nvidia.com/gpu"] = gpus
    return yaml.safe_dump(job)

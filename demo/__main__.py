"""Demos on a cluster from nothing: `elastic`, a job that changes its size (also on the cluster of `--kubeconfig`), and
`quota`, three teams that share their GPUs."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from demo import elastic, install, quota
from demo.kube import DemoError, Kube
from demo.stage import Way
from devcluster import cache, command_line
from devcluster.progress import Progress

DEFAULT_NAME = "demo"
QUOTA_NAME = "demo-quota"
"""The names of the Makefile. The demos use two clusters, so that neither ends what runs on the other's."""

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)


@app.command(name="elastic")
def main_job(
    name: Annotated[str, typer.Option(help="The local cluster's name.")] = DEFAULT_NAME,
    nodes: Annotated[int, typer.Option(min=2, help="Nodes of the local cluster; the demo uses two.")] = 2,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs per node, and so processes per pod.")] = 4,
    kubeconfig: Annotated[Path | None, typer.Option(help="A cluster of yours, with the operator installed.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Where the picture goes; else into the cache.")] = None,
) -> None:
    """One job, two nodes: 4 -> 8 -> 4 processes in the middle of training, under torchrun and in Elastic mode."""
    console = Console(width=140, highlight=False)
    started = time.monotonic()
    kube = _existing(kubeconfig) if kubeconfig else _local(name=name, nodes=nodes, gpus=gpus)
    elastic.run(kube, gpus=gpus, nodes=_two_nodes(kube), console=console, picture=picture or cache.root() / "demo.svg")
    commands = [
        f"kubectl -n {elastic.NAMESPACE} get eptj,pods",
        f"kubectl -n {elastic.NAMESPACE} scale eptj/{elastic.JOB} --replicas=1",
        f"kubectl -n {elastic.NAMESPACE} describe eptj {elastic.JOB}",
        f"kubectl -n {elastic.NAMESPACE} logs -f {elastic.JOB}-master-0",
    ]
    reached = [f"export KUBECONFIG={kubeconfig}", *commands] if kubeconfig else _on_local(name, commands)
    _say_done(console, started, reached)


@app.command(name="quota")
def quota_demo(
    name: Annotated[str, typer.Option(help="The local cluster's name.")] = QUOTA_NAME,
    mode: Annotated[Way, typer.Option(help="How the jobs train.")] = Way.TORCHRUN,
    rounds: Annotated[int, typer.Option(min=1, help="How often the owner comes back for its GPUs.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what happened there, for machines.")] = None,
) -> None:
    """Three teams, six GPUs: one lends GPUs and gets them back when it needs them; the other's training continues."""
    console = Console(width=140, highlight=False)
    started = time.monotonic()
    progress = Progress()
    cluster, kube = install.local_cluster(name=name, nodes=quota.NODES, gpus=quota.GPUS, progress=progress)
    install.install_operator(kube, progress)
    report = quota.run(cluster, kube, console, way=mode, rounds=rounds)
    console.rule("what happened")
    report.show(console)
    if json_file:
        json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    commands = [
        "kubectl get gpuquotapolicies",
        "kubectl get eptj,pods --all-namespaces",
        f"kubectl -n {quota.TEAM_A} describe eptj {quota.JOB}",
    ]
    _say_done(console, started, _on_local(name, commands))


def _local(*, name: str, nodes: int, gpus: int) -> Kube:
    progress = Progress()
    cluster, kube = install.local_cluster(name=name, nodes=nodes, gpus=gpus, progress=progress)
    install.install_operator(kube, progress)
    cluster.shared_claim(elastic.NAMESPACE)
    return kube


def _existing(kubeconfig: Path) -> Kube:
    kube = Kube(kubeconfig, shutil.which("kubectl") or "kubectl", shutil.which("helm") or "helm")
    kube.kubectl("get", "crd", "elasticpytorchjobs.elastic-pytorch.dev")
    kube.kubectl("get", "pvc", "checkpoints", "-n", elastic.NAMESPACE)
    return kube


def _two_nodes(kube: Kube) -> tuple[str, str]:
    names = kube.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
    if len(names) < 2:
        raise DemoError("the demo needs two nodes with GPUs; this cluster has " + (", ".join(names) or "none"))
    return names[0], names[1]


def _on_local(name: str, commands: list[str]) -> list[str]:
    """The commands, with what makes them reach the local cluster, and what takes it down."""
    which = "" if name == DEFAULT_NAME else f" NAME={name}"
    return [f'eval "$(make env{which})"', *commands, f"make down{which}"]


def _say_done(console: Console, started: float, commands: list[str]) -> None:
    console.print(f"Done in {time.monotonic() - started:.0f} s. The cluster is still up. In this folder, copy:")
    for command in commands:
        console.print(f"  {command}")


if __name__ == "__main__":
    command_line.run(app, program="demo")

"""The command line: `python -m devcluster --help`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from devcluster import (
    binaries,
    cache,
    cluster,
    command_line,
    images,
    machine,
    names,
    network,
    packages,
    projectimage,
    torchtree,
)
from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.names import Layout
from devcluster.progress import Progress

app = typer.Typer(
    help="A real Kubernetes on this machine: real nodes, real kubelets, pretended GPUs. Needs Linux and root.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Name = Annotated[str, typer.Option("--name", envvar="NAME", help="The cluster; several can run side by side.")]


class Fault(StrEnum):
    """The faults that `fault` knows. All of them apply to a node, the first four to a part."""

    KILL = "kill"
    RESTART = "restart"
    FREEZE = "freeze"
    THAW = "thaw"
    CUT_OFF = "cut-off"
    HEAL = "heal"


@app.command()
def up(
    name: Name = names.DEFAULT_NAME,
    nodes: Annotated[int, typer.Option(envvar="NODES", help="Nodes; 0 for a control plane only.")] = 2,
    gpus: Annotated[int, typer.Option(envvar="GPUS", help="GPUs of each node.")] = 4,
    torch: Annotated[
        str, typer.Option(help='The torch that pods with GPUs see: a file of tools/torch/, "" for none.')
    ] = torchtree.DEFAULT_TREE,
    kubernetes: Annotated[
        str, typer.Option(help=f"The release of Kubernetes: {', '.join(binaries.KUBERNETES)}.")
    ] = binaries.DEFAULT_KUBERNETES,
    network_policies: Annotated[
        bool, typer.Option("--network-policies", help="Enforce network policies; else they are only stored.")
    ] = False,
    image: Annotated[
        list[str] | None, typer.Option(help="Build this target of the Dockerfile (operator, worker) for the nodes.")
    ] = None,
) -> None:
    """Bring a cluster up; return when it is ready."""
    targets = [_known(target) for target in image or []]
    ready = Cluster.up(
        name,
        nodes=nodes,
        gpus=gpus,
        torch_tree=torch,
        kubernetes=kubernetes,
        network_policies=network_policies,
        targets=targets,
    )
    _say_environment(ready)


@app.command()
def env(name: Name = names.DEFAULT_NAME) -> None:
    """Print the shell's variables for a cluster: after `eval "$(make env)"`, plain kubectl and helm reach it."""
    _say_environment(Cluster.attach(name))


@app.command()
def down(
    name: Name = names.DEFAULT_NAME,
    everything: Annotated[bool, typer.Option("--all", help="All clusters that run here.")] = False,
) -> None:
    """Take a cluster down and give the machine back, also after a crash."""
    for each in sorted({*cluster.running(), name}) if everything else [name]:
        cluster.take_down(each)


@app.command(name="list")
def list_clusters() -> None:
    """Name the clusters that run."""
    for name in cluster.running():
        typer.echo(f"{name}\t{Layout(name).kubeconfig}")


@app.command()
def build() -> None:
    """Build the programs (Kubernetes, etcd, helm) into the cache, and print what to add to PATH."""
    progress = Progress()
    machine.ensure(progress)
    typer.echo(binaries.ensure(progress).search_path())


@app.command()
def prepare() -> None:
    """Do the slow steps once: packages, programs, torch, the images. Later calls find all of it in the cache."""
    progress = Progress()
    machine.ensure(progress)
    cache.check_room("bin", "images", *("torch" for _ in torchtree.TREES))
    packages.metrics_programs(progress)
    binaries.ensure(progress)
    binaries.ensure_module(binaries.KWOK, progress)
    images.pause(progress)
    for tree in torchtree.TREES:
        torchtree.ensure(progress, tree=tree)
    for target in projectimage.TARGETS:
        projectimage.build(progress, target=target)


@app.command(name="image")
def image_command(
    target: Annotated[str, typer.Option(help="The Dockerfile's target: operator or worker.")] = "operator",
    load: Annotated[bool, typer.Option("--load", help="Put it on the cluster's nodes, too.")] = False,
    name: Name = names.DEFAULT_NAME,
) -> None:
    """Build an image of the project from its Dockerfile, if it changed, and print its archive."""
    archive = projectimage.build(Progress(), target=_known(target))
    if load:
        Cluster.attach(name).load_image(archive, progress=Progress())
    typer.echo(archive)


@app.command(name="load")
def load_image(archive: Path, name: Name = names.DEFAULT_NAME) -> None:
    """Put the images of an archive on every node of a cluster."""
    Cluster.attach(name).load_image(archive.resolve(strict=True), progress=Progress())


@app.command()
def claim(
    namespace: str,
    name: Name = names.DEFAULT_NAME,
    claim_name: Annotated[str, typer.Option("--claim", help="The claim's name.")] = "checkpoints",
) -> None:
    """Give a namespace a volume claim that pods on all nodes share."""
    Cluster.attach(name).shared_claim(namespace, name=claim_name)


@app.command()
def fault(target: str, what: Fault, name: Name = names.DEFAULT_NAME) -> None:
    """Break or mend a node (n1), a node's program (n1/kubelet) or the control plane's (apiserver, etcd, ...)."""
    attached = Cluster.attach(name)
    method = what.value.replace("-", "_")
    is_node = names.NODE_RULE.fullmatch(target) is not None
    victim = attached.node(target) if is_node else attached.part(target)
    if not hasattr(victim, method):
        raise DevclusterError(f"what={what.value}: only a node can be {what.value}, {target} is a program")
    getattr(victim, method)()


@app.command()
def sick(
    target: Annotated[str, typer.Argument(metavar="NODE")],
    gpus: Annotated[list[int] | None, typer.Argument(help="The sick ones, from 0; none: all are healthy.")] = None,
    name: Name = names.DEFAULT_NAME,
) -> None:
    """Make exactly these GPUs of a node unhealthy."""
    Cluster.attach(name).node(target).set_sick(gpus or [])


@app.command(
    name="exec",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run_inside(target: str, context: typer.Context, name: Name = names.DEFAULT_NAME) -> None:
    """Run a command inside a node (n1) or the control plane's network (control-plane)."""
    pid = network.anchor(Layout(names.check_name(name)), target)
    os.execvp("nsenter", ["nsenter", "--target", str(pid), "--net", "--mount", *context.args])


def _say_environment(cluster: Cluster) -> None:
    typer.echo(f"export KUBECONFIG={cluster.kubeconfig}")
    typer.echo(f"export PATH={cluster.programs.search_path()}:$PATH")


def _known(target: str) -> str:
    if target not in projectimage.TARGETS:
        raise DevclusterError(f"target={target!r}: write one of {', '.join(projectimage.TARGETS)}")
    return target


if __name__ == "__main__":
    command_line.run(app, program="devcluster")

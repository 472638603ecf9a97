"""Installs a running operator from nothing, as a user would: the cluster, the image from the Dockerfile, the chart."""

from __future__ import annotations

from pathlib import Path

from demo.kube import Kube
from devcluster import projectimage
from devcluster.cluster import Cluster
from devcluster.progress import Progress

REPOSITORY = Path(__file__).resolve().parents[1]
CHART = REPOSITORY / "charts" / "elastic-pytorch"
NAMESPACE = "elastic-system"
RELEASE = "elastic-pytorch"


def local_cluster(*, name: str, nodes: int, gpus: int, progress: Progress) -> tuple[Cluster, Kube]:
    """A running local cluster with the project's images on its nodes, and volumes for the claims of the examples."""
    cluster = Cluster.up(name=name, nodes=nodes, gpus=gpus, targets=projectimage.TARGETS, progress=progress)
    cluster.offer_volumes()
    return cluster, Kube(cluster.kubeconfig, cluster.kubectl, cluster.programs["helm"])


def install_operator(kube: Kube, progress: Progress, *extra: str, chart: Path = CHART) -> None:
    """Install or upgrade with helm, from the built image, and wait until it runs. `extra` are more words for helm."""
    content = projectimage.build(progress).parent.name
    with progress.step("helm install: the operator, from the image just built, into the cluster"):
        kube.helm(
            *("upgrade", "--install", RELEASE, str(chart), "--namespace", NAMESPACE, "--create-namespace"),
            *_image("image", projectimage.ref("operator")),
            *_image("workerImage", projectimage.ref("worker")),
            # The tags are always the same; a digest of the content changes, and rolls the pods.
            *("--set", f"podAnnotations.image={content}"),
            *("--wait", "--timeout", "180s", *extra),
        )


def _image(value: str, name: str) -> tuple[str, ...]:
    """helm's arguments that make `name` (REGISTRY/REPOSITORY:TAG) the image that the chart calls `value`."""
    path, _, tag = name.rpartition(":")
    registry, _, repository = path.partition("/")
    parts = {"registry": registry, "repository": repository, "tag": tag}
    return tuple(word for key, part in parts.items() for word in ("--set", f"{value}.{key}={part}"))

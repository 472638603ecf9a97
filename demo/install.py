"""From nothing to a running operator: the cluster, the image from the Dockerfile, the chart, as a user would."""

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
    """A running local cluster with the operator's image on its nodes."""
    archive = projectimage.build(progress)
    cluster = Cluster.up(name=name, nodes=nodes, gpus=gpus, archives=[archive], progress=progress)
    return cluster, Kube(cluster.kubeconfig, cluster.kubectl, cluster.programs["helm"])


def install_operator(kube: Kube, progress: Progress, *extra: str) -> None:
    """helm install, from the built image, and wait until it is up."""
    registry, repository, tag = _parts(projectimage.ref("operator"))
    content = projectimage.build(progress).parent.name
    with progress.step("helm install: the operator, from the image just built, into the cluster"):
        kube.helm(
            *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"),
            *("--set", f"image.registry={registry}", "--set", f"image.repository={repository}"),
            # The tag is always the same: what changes, and rolls the pods, is the content.
            *("--set", f"image.tag={tag}", "--set", f"podAnnotations.image={content}"),
            *("--wait", "--timeout", "180s", *extra),
        )


def _parts(image: str) -> tuple[str, str, str]:
    name, _, tag = image.rpartition(":")
    registry, _, repository = name.partition("/")
    return registry, repository, tag

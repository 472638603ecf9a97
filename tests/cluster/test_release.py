"""A release is made twice, and comes to a cluster from a registry, as docs/release.md says."""

import contextlib
import os
import re
from pathlib import Path

import pytest

from demo.install import NAMESPACE, REPOSITORY
from devcluster import images, packages
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from release import assemble, source
from tests.cluster.install import Installation
from tests.cluster.registry import reachable

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]

PAGE = (REPOSITORY / source.PAGE).read_text()
BLOCKS = dict(re.findall(r"^<!-- run: (\w+) -->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
REGISTRY, VERSION = re.findall(r"^export REGISTRY=(\S+) VERSION=(\S+)$", PAGE, re.MULTILINE)[0]


def test_every_block_of_the_page_is_run_by_the_test_below():
    assert list(BLOCKS) == ["push", "private", "training", "job"]
    assert PAGE.count("```") == 2 * len(BLOCKS)


@pytest.fixture
def installation(lab):
    """The tests' own release is away, with its namespace, and is there again at the end."""
    found = Installation(lab)
    away(found)
    yield found
    away(found)
    found.install()


def away(installation):
    installation.kube.helm("uninstall", "elastic-pytorch", "--namespace", NAMESPACE, "--wait", "--ignore-not-found")
    for namespace in (NAMESPACE, "team-a"):
        installation.lab.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait")


def forget_images(lab, where):
    """No node has an image of that registry any more; a node where none of it ran had none."""
    for name in lab.cluster.settings.node_names():
        for digest in (REPOSITORY / "dist" / VERSION / "digests.txt").read_text().split():
            reference = re.sub(r":[^:/]+@", "@", digest)
            assert reference.startswith(where)
            with contextlib.suppress(DevclusterError):
                lab.cluster.node(name).take_image(reference)


def test_release_installs_from_a_registry_and_is_reproducible(lab, installation, tmp_path):
    packages.ensure(Progress(), {"skopeo": "skopeo"})
    programs = {str(Path(lab.cluster.programs[name]).parent) for name in ("kubectl", "helm")}
    user = {
        **os.environ,
        "KUBECONFIG": str(lab.cluster.kubeconfig),
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
    }

    with reachable(lab.cluster, tmp_path) as registry:
        where = f"{registry.address}/team"

        def run(name, environment):
            told = {"REGISTRY": where, "VERSION": VERSION}
            return registry.run(BLOCKS[name].replace(REGISTRY, where), {**user, **environment, **told})

        with registry.serving(asks=False) as environment:
            base = f"oci-archive:{images.base(Progress()).archive}"
            mirrored = f"docker://{registry.address}/mirror/pytorch:latest"
            registry.run(f"skopeo copy {base} {mirrored}", user | environment)
            assert "Succeeded" in run("push", environment)

        away(installation)
        forget_images(lab, where)
        with registry.serving(asks=True) as environment:
            assert "Succeeded" in run("private", environment)
            run("training", environment)
            run("job", environment)
            pulled = lab.kubectl("get", "pods", "-n", "team-a", "-o", "jsonpath={.items[*].status.*.*.imageID}")
            assert {image.partition("@")[0] for image in pulled.split()} >= {f"{where}/training"}

    again = assemble.release(
        source.Wanted(VERSION, where), repository=REPOSITORY, target=tmp_path / "again", progress=Progress()
    )
    assert (again / "SHA256SUMS").read_text() == (REPOSITORY / "dist" / VERSION / "SHA256SUMS").read_text()

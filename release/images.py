"""The two images as OCI archives, for the kind of machine that this is, and their digests."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster import oci, projectimage
from devcluster.images import Base
from release import archives
from release.source import Source, Wanted


@dataclass(frozen=True, slots=True)
class Image:
    """A target of the Dockerfile, and the chart's value that says where its image is."""

    target: str
    value: str

    @property
    def repository(self) -> str:
        """Its name in a registry, as the chart's values have it."""
        return f"elastic-{self.target}"


IMAGES = (Image("operator", "image"), Image("worker", "workerImage"))


def archive_name(image: Image) -> str:
    """Of its file in the release."""
    return f"{image.repository}-linux-{oci.architecture()}.tar"


def build(image: Image, archive: Path, wanted: Wanted, source: Source, *, base: Base) -> str:
    """Build an image into `archive`; its digest, which is also the one it has in a registry."""
    with tempfile.TemporaryDirectory() as scratch:
        layout = Path(scratch) / "layout"
        # Without a cache: what an earlier build left would be taken for what this one makes.
        options = ("--no-cache", "--timestamp", str(source.epoch))
        name = f"docker.io/local/{image.repository}:release"
        projectimage.build_to(
            f"oci:{layout}", name, *options, target=image.target, base=base.archive, repository=source.folder
        )
        digest = _name(layout, ref=f"{wanted.registry or 'localhost'}/{image.repository}:{wanted.version}")
        archive.write_bytes(archives.pack(layout, epoch=source.epoch))
    return digest


def table(digests: Mapping[Image, str], wanted: Wanted) -> str:
    """Each image's name with its digest, on a line of its own."""
    where = f"{wanted.registry}/" if wanted.registry else ""
    return "".join(f"{where}{i.repository}:{wanted.version}@{digest}\n" for i, digest in digests.items())


def _name(layout: Path, *, ref: str) -> str:
    """Write the index of a layout with one image anew, with the image's name; its digest."""
    index = layout / "index.json"
    (found,) = json.loads(index.read_text())["manifests"]
    digest = str(found["digest"])
    manifest = (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()
    assert hashlib.sha256(manifest).hexdigest() in digest
    index.write_text(json.dumps(oci.index_of(manifest, ref=ref), sort_keys=True))
    return digest

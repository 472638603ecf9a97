"""The chart as a package, with the images' digests in its values, and as plain manifests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from devcluster.errors import DevclusterError
from generate import helm, install_manifest
from release import archives
from release.images import Image
from release.source import CHART, Source, Wanted


def write(made: Path, wanted: Wanted, source: Source, digests: Mapping[Image, str]) -> None:
    """Write elastic-pytorch-VERSION.tgz and install.yaml into the release. It changes the exported chart."""
    chart = source.folder / CHART
    values = {f"{image.value}.digest": digest for image, digest in digests.items()}
    if wanted.registry:
        values["image.registry"] = wanted.registry
    file = chart / "values.yaml"
    file.write_text(with_values(file.read_text(), values))
    packed = helm.run("package", chart, "--destination", made)
    if packed.returncode:
        raise DevclusterError(f"`helm package` failed: {packed.stderr.strip()}")
    package = made / f"elastic-pytorch-{wanted.version}.tgz"
    package.write_bytes(archives.repack(package.read_bytes(), epoch=source.epoch))
    (made / "install.yaml").write_text(install_manifest.text(chart, registry=wanted.registry))


def with_values(text: str, values: Mapping[str, str]) -> str:
    """A values file with other values for some keys, by dotted names; all else, comments too, stays as it is."""
    for key, value in values.items():
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        for part in key.split("."):
            assert isinstance(node, yaml.MappingNode), key
            node = next(child for name, child in node.value if name.value == part)
        assert isinstance(node, yaml.ScalarNode), key
        text = f'{text[: node.start_mark.index]}"{value}"{text[node.end_mark.index :]}'
    return text

"""The files of a release: the same content gives the same bytes, whenever and wherever it is packed."""

import io
import json
import os
import shutil
import tarfile
import time
import zipfile
from dataclasses import replace

import pytest
import yaml

from devcluster import oci
from devcluster.progress import Progress
from generate import helm, install_manifest
from release import archives, assemble, chart, images, sbom, source

EARLY, LATE = 1_000_000_000, 1_700_000_000
DIGESTS = {image: f"sha256:{number * 64}" for image, number in zip(images.IMAGES, "12", strict=True)}
(VERSION,) = set(source.versions(source.ROOT).values())
WANTED = source.Wanted(VERSION, "registry.example.com/team")


def files_of(folder, *, at, names):
    """A folder with these files, made in this order and at this time."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"in {name}")
        os.utime(path, (at, at))
        path.chmod(0o600 if at == EARLY else 0o644)
    return folder


def test_a_tar_depends_on_what_is_in_it_and_the_commits_time(tmp_path):
    for name, at, names in (("one", EARLY, ["b", "a/c"]), ("two", LATE, ["a/c", "b"])):
        files_of(tmp_path / name, at=at, names=names)
    one, two = (archives.pack(tmp_path / name, epoch=5) for name in ("one", "two"))
    assert one == two
    with tarfile.open(fileobj=io.BytesIO(one)) as found:
        assert [(member.name, member.mtime) for member in found] == [("a/c", 5), ("b", 5)]


@pytest.mark.programs
@pytest.mark.parametrize("registry", ["", WANTED.registry])
def test_the_charts_package_names_the_images_by_digest_and_is_the_same_each_time(registry, tmp_path):
    wanted = replace(WANTED, registry=registry)
    for name, at in (("one", EARLY), ("two", LATE)):
        copied = tmp_path / name / source.CHART
        shutil.copytree(helm.CHART, copied)
        for path in copied.rglob("*"):
            os.utime(path, (at, at))
        (tmp_path / f"{name}-made").mkdir()
        chart.write(tmp_path / f"{name}-made", wanted, source.Source(tmp_path / name, LATE), DIGESTS)
    made = [{path.name: path.read_bytes() for path in (tmp_path / f"{name}-made").iterdir()} for name in ("one", "two")]
    assert made[0] == made[1]
    assert made[0].keys() == {f"elastic-pytorch-{VERSION}.tgz", "install.yaml"}

    package = tmp_path / "one-made" / f"elastic-pytorch-{VERSION}.tgz"
    given = () if registry else ("--set", "image.registry=given.example")
    for text in (helm.render(*given, chart=package), made[0]["install.yaml"].decode()):
        where = registry or ("given.example" if text.startswith("---\n# Source") else "REGISTRY")
        for image, digest in DIGESTS.items():
            assert f"{where}/{image.repository}@{digest}" in text
    assert helm.run("lint", "--strict", package).returncode == 0


def test_values_are_changed_and_all_else_stays():
    text = 'image: # where\n  tag: ""  # of it\n  digest: ""\nother: {digest: none}\n'
    changed = chart.with_values(text, {"image.digest": "sha256:1", "other.digest": "x"})
    assert changed == 'image: # where\n  tag: ""  # of it\n  digest: "sha256:1"\nother: {digest: "x"}\n'


@pytest.mark.programs
def test_the_plain_manifests_say_in_one_word_where_the_images_must_be_written():
    lines = [line for line in install_manifest.text().splitlines() if "REGISTRY/" in line and not line.startswith("#")]
    assert len(lines) == len(images.IMAGES)
    assert "REGISTRY" not in install_manifest.text(registry=WANTED.registry)


@pytest.mark.processes
def test_a_wheel_is_the_same_each_time(tmp_path):
    def build(name, at):
        folder, made = tmp_path / name, tmp_path / f"{name}-made"
        for wanted in ("pyproject.toml", "uv.lock", "api", "client", "operator", "worker"):
            original = source.ROOT / wanted
            copy = shutil.copytree if original.is_dir() else shutil.copy
            (folder / wanted).parent.mkdir(exist_ok=True)
            copy(original, folder / wanted)
        for path in folder.rglob("*"):
            os.utime(path, (at, at))
        made.mkdir()
        assemble.wheels(source.Source(folder, LATE), made, Progress(quiet=True))
        return {path.name: path.read_bytes() for path in made.iterdir()}

    one = build("one", EARLY)
    assert one == build("two", LATE)
    for content in one.values():
        times = {member.date_time for member in zipfile.ZipFile(io.BytesIO(content)).infolist()}
        assert times == {time.gmtime(LATE)[:6]}
    packages = ["api", "client", "operator", "worker"]
    assert [name.partition("-")[0] for name in sorted(one)] == [f"elastic_pytorch_{name}" for name in packages]


def test_the_list_of_contents_has_the_commits_time_and_a_number_made_from_it():
    def bill(package, serial):
        return {"serialNumber": serial, "metadata": {"timestamp": serial}, "components": [package]}

    one, two, other = (sbom.settled(bill(*what), epoch=LATE) for what in (("a", "1"), ("a", "2"), ("b", "1")))
    assert one == two
    assert json.loads(one)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert json.loads(one)["serialNumber"] != json.loads(other)["serialNumber"]


def test_the_images_are_those_of_the_charts_values():
    values = yaml.safe_load((helm.CHART / "values.yaml").read_text())
    assert {image.value: image.repository for image in images.IMAGES} == {
        value: values[value]["repository"] for value in ("image", "workerImage")
    }
    assert images.table(DIGESTS, WANTED).splitlines()[0] == (
        f"registry.example.com/team/elastic-operator:{VERSION}@sha256:{'1' * 64}"
    )
    assert images.archive_name(images.IMAGES[0]) == f"elastic-operator-linux-{oci.architecture()}.tar"

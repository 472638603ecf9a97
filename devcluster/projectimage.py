"""Builds the project's images from its Dockerfile with buildah, once for each content of the sources.

The base is made here (see images.py), so no registry is needed. The build steps reach the package index as this machine
does: they get its index settings, proxies and certificate authorities, which are in no image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import cache, images, machine, shell
from devcluster.progress import Progress

REPOSITORY = Path(__file__).parent.parent
SOURCES = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "uv.lock",
    "api",
    "client/pyproject.toml",
    "operator",
    "worker",
)
TARGETS = ("operator", "worker")
KEPT_ARCHIVES = 3
# Layers of earlier builds make the next one fast; beyond this size all of them are removed.
STORAGE_LIMIT_BYTES = 8 << 30
CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
CA_FILE_INSIDE = "/run/build-ca.crt"


def ref(target: str) -> str:
    """The image's full name; pods may write it without `docker.io/`."""
    return f"docker.io/local/elastic-{target}:dev"


def build(progress: Progress, *, target: str = "operator", repository: Path = REPOSITORY) -> Path:
    """The archive of a Dockerfile target's image, built if there is none for these sources yet."""
    base = images.base(progress)

    def build_archive(folder: Path) -> None:
        machine.ensure(progress)
        with progress.step(f"building {ref(target)} from the Dockerfile (about half a minute)"):
            _build(target, base=base.archive, repository=repository, archive=folder / f"{target}.tar")

    sources = [repository / name for name in SOURCES]
    key = cache.key_of_files(sources, relative_to=repository, extra=[target, base.archive.parent.name])
    entry = cache.entry(f"images/{target}-{key}", build_archive)
    cache.keep_newest(entry, beginning=f"{target}-", count=KEPT_ARCHIVES)
    return entry / f"{target}.tar"


def _build(target: str, *, base: Path, repository: Path, archive: Path) -> None:
    # Of the kinds of archive that containerd reads, this one is not compressed, which would cost seconds.
    destination = f"docker-archive:{archive}:{ref(target)}"
    build_to(destination, ref(target), "--layers", target=target, base=base, repository=repository)


def build_to(destination: str, name: str, *options: str, target: str, base: Path, repository: Path) -> None:
    """Build a target on the base, name it `name` in buildah's storage, and copy it to a destination in skopeo's format.

    `options` are further options of `buildah build`.
    """
    with cache.lock("buildah"):
        storage = cache.root() / "buildah"
        if _size_bytes(storage) > STORAGE_LIMIT_BYTES:
            shutil.rmtree(storage)
        for folder in ("storage", "run", "tmp"):
            (storage / folder).mkdir(parents=True, exist_ok=True)
        base_ref = _base(storage, base)
        words = ["--isolation", "chroot", "--format", "oci", "--target", target, "--tag", name, *options]
        arguments = [word for item in build_arguments(base_ref) for word in ("--build-arg", item)]
        volumes = [word for file in _ca_file() for word in ("--volume", f"{file}:{CA_FILE_INSIDE}:ro")]
        dockerfile = ["--file", str(repository / "Dockerfile")]
        _buildah(storage, "build", *words, *arguments, *volumes, *dockerfile, str(repository))
        _buildah(storage, "push", "--quiet", name, destination)


def _base(storage: Path, archive: Path) -> str:
    """The name of the base image in buildah's storage, which is filled from its archive the first time."""
    name = f"docker.io/local/{archive.parent.name}:1"
    if name not in _buildah(storage, "images", "--format", "{{.Name}}:{{.Tag}}").split():
        image = _buildah(storage, "pull", "--quiet", f"oci-archive:{archive}").strip()
        _buildah(storage, "tag", image, name)
    return name


def build_arguments(base_ref: str) -> list[str]:
    """NAME=VALUE for --build-arg: the base, and how this machine reaches its package index."""
    arguments = {"BASE": base_ref}
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or _configured_index()
    if index:
        arguments |= {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
    if _ca_file():
        arguments |= {"PIP_CERT": CA_FILE_INSIDE, "SSL_CERT_FILE": CA_FILE_INSIDE}
    return [f"{name}={value}" for name, value in arguments.items()]


def _configured_index() -> str:
    """The index of pip's configuration files; "" where there is none."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _ca_file() -> list[str]:
    """The file of certificate authorities that this machine trusts, which may be more than the base image's."""
    candidates = [os.environ.get("PIP_CERT"), os.environ.get("SSL_CERT_FILE"), *CA_FILES]
    return [file for file in candidates if file and Path(file).is_file()][:1]


def _buildah(storage: Path, *words: str) -> str:
    """Run buildah with a separate storage, in a mount namespace, since it leaves mounts behind.

    The storage driver is fixed, whatever this machine's storage.conf says: each driver orders the files of a layer in
    another way, which gives another digest.
    """
    place = ("--root", str(storage / "storage"), "--runroot", str(storage / "run"), "--storage-driver", "overlay")
    command: Sequence[str] = ["buildah", *place, *words]
    unshare = ("unshare", "--mount", "--propagation", "private")
    return shell.run(*unshare, *command, env={"TMPDIR": str(storage / "tmp")})


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_dir())

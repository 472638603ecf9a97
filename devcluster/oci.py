"""Writes one-layer container images as OCI archives, which `ctr images import` and `buildah pull` read."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MEDIA = "application/vnd.oci.image"
# Part of the cache key of every archive: raise it when the format of archives changes.
FORMAT = "2"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """This machine's architecture, by its name in container images."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def write_archive(
    target: Path,
    *,
    rootfs: Path,
    ref: str,
    entrypoint: Sequence[str] = (),
    leave_out: Callable[[str], bool] | None = None,
) -> None:
    """Make the archive `target` from the folder `rootfs`, named `ref` (in full: docker.io/local/name:tag).

    `leave_out(path)` says which paths (relative, with folders' contents) are left out. Times are dropped, so that the
    same content gives the same digest.
    """
    layer = target.with_suffix(".layer")
    _write_layer(layer, rootfs=rootfs, leave_out=leave_out or (lambda _path: False))
    layer_digest = _digest_of_file(layer)
    config = _json(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": {"Env": [DEFAULT_PATH], "Entrypoint": list(entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            # buildah needs one entry for each layer.
            "history": [{"created_by": "devcluster"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": _descriptor(f"{MEDIA}.config.v1+json", config),
            "layers": [
                {"mediaType": f"{MEDIA}.layer.v1.tar", "digest": layer_digest, "size": layer.stat().st_size},
            ],
        }
    )
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", _json(index_of(manifest, ref=ref)))
        for blob in (config, manifest):
            _add(archive, _blob_path(_digest(blob)), blob)
        archive.add(layer, arcname=_blob_path(layer_digest), filter=_without_owner)
    layer.unlink()


def index_of(manifest: bytes, *, ref: str) -> dict[str, Any]:
    """The index.json that names one manifest `ref`, for containerd and for buildah."""
    descriptor = _descriptor(f"{MEDIA}.manifest.v1+json", manifest) | {
        "platform": {"architecture": architecture(), "os": "linux"},
        "annotations": {"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref},
    }
    return {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [descriptor]}


def _write_layer(layer: Path, *, rootfs: Path, leave_out: Callable[[str], bool]) -> None:
    def normal(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if leave_out(member.name):
            return None
        member.mtime = 0
        return member

    with tarfile.open(layer, "w") as archive:
        for path in sorted(rootfs.iterdir()):
            archive.add(path, arcname=path.name, filter=normal)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _blob_path(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"

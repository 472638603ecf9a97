"""Installs the few Debian packages that the cluster needs, with apt, where a program is missing, after saying so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from devcluster import shell
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

# The program (or file) that shows that a package is there -> the package. Another system's own build does as well.
NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "nft": "nftables",
    "socat": "socat",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
}
NEEDED_FOR_IMAGES = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
}
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


def ensure(progress: Progress) -> None:
    """Install what is missing. Raises DevclusterError where apt is not there to do it."""
    missing = sorted({package for proof, package in (NEEDED | NEEDED_FOR_IMAGES).items() if not _present(proof)})
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise DevclusterError(
            f"please install with your package manager: {' '.join(missing)} (there is no apt-get here)"
        )
    with progress.step(f"installing Debian packages that are missing: {' '.join(missing)}"):
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        shell.run("apt-get", "update", env=env)
        shell.run("apt-get", "install", "-y", "--no-install-recommends", *missing, env=env)


def _present(proof: str) -> bool:
    if proof.startswith("/"):
        return Path(proof).exists()
    search = f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}"
    return shutil.which(proof, path=search) is not None

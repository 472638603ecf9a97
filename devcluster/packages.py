"""Installs the few Debian packages that the cluster needs, with apt, where a program is missing, after saying so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from devcluster import cache, shell
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
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
}
NEEDED_FOR_IMAGES = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
}
# Taken out of its package into the cache and not installed: installing it would start a server on this machine.
NEEDED_FOR_METRICS = {"prometheus": "prometheus", "promtool": "prometheus"}
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


def metrics_programs(progress: Progress) -> dict[str, str]:
    """Paths of prometheus and promtool: the system's own, else those of Debian's package, in the cache."""
    return {
        program: shutil.which(program) or str(_unpacked(package, progress) / "usr" / "bin" / program)
        for program, package in NEEDED_FOR_METRICS.items()
    }


def _unpacked(package: str, progress: Progress) -> Path:
    """The files of a Debian package, in a folder of the cache."""

    def build(target: Path) -> None:
        with progress.step(f"unpacking Debian's package {package}"):
            if not shell.try_run("apt-cache", "show", package):
                shell.run("apt-get", "update")
            shell.run("apt-get", "download", package, cwd=target)
            (archive,) = target.glob("*.deb")
            shell.run("dpkg-deb", "--extract", archive, target)
            archive.unlink()

    return cache.entry(f"deb/{package}", build)


def _present(proof: str) -> bool:
    if proof.startswith("/"):
        return Path(proof).exists()
    search = f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}"
    return shutil.which(proof, path=search) is not None

"""Installs the few Debian packages that are needed with apt, and reports it, if a program is missing.

It uses the standard library only: `python3 -m devcluster.packages` installs the tests' packages before anything else.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from devcluster import cache, shell
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

# The program (or file) that shows that a package is installed -> the package. Another build of the program counts, too.
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
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
}
# The pods' PID 1 is a shell script, which is tested in the shells of images. libfaketime makes a process's clock
# jump. git tells what has changed since a commit.
NEEDED_FOR_TESTS = {
    "busybox": "busybox-static",
    "/usr/lib/*/faketime/libfaketime.so.1": "libfaketime",
    "git": "git",
}
# Unpacked into the cache and not installed: an installation would start a server on this machine.
NEEDED_FOR_METRICS = {"prometheus": "prometheus", "promtool": "prometheus"}
# Unpacked for the same reason: Slurm with its authentication, and the libraries of both that few machines have.
NEEDED_FOR_SLURM = (
    "slurm-client",
    "slurmctld",
    "slurmd",
    "slurm-wlm-basic-plugins",
    "munge",
    "libmunge2",
    "libhwloc15",
    "liblua5.1-0",
    "libnuma1",
    "libreadline8",
)
UNATTENDED = {"DEBIAN_FRONTEND": "noninteractive"}
# Debian's `su` leaves these folders out of PATH.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def ensure(progress: Progress, needed: Mapping[str, str] = NEEDED) -> None:
    """Install missing packages. Raises DevclusterError if that fails."""
    path = os.environ.get("PATH", "").split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*path, *(folder for folder in SYSTEM_FOLDERS if folder not in path)])
    install(progress, {package for proof, package in needed.items() if not _present(proof)})


def install(progress: Progress, packages: Iterable[str]) -> None:
    """apt-get install. Raises DevclusterError with the remedy if that fails."""
    missing = sorted(packages)
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise DevclusterError(
            f"please install with your package manager: {' '.join(missing)} (there is no apt-get here)"
        )
    if os.geteuid() != 0:
        raise DevclusterError(f"Debian packages are missing, and only root can install them: {' '.join(missing)}")
    with progress.step(f"installing Debian packages that are missing: {' '.join(missing)}"):
        command = ("apt-get", "install", "-y", "--no-install-recommends", *missing)
        if not shell.try_run(*command, env=UNATTENDED):
            # The package lists are missing or too old. A list that cannot be fetched is an error, not a warning.
            shell.run("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
            shell.run(*command, env=UNATTENDED)


def metrics_programs(progress: Progress) -> dict[str, str]:
    """Paths of prometheus and promtool: the system's, else those of Debian's package, in the cache."""
    return {
        program: shutil.which(program) or str(_unpacked(package, (package,), progress) / "usr" / "bin" / program)
        for program, package in NEEDED_FOR_METRICS.items()
    }


def slurm_folder(progress: Progress) -> Path:
    """A folder of the cache with the files of Debian's packages of Slurm: `usr/bin`, `usr/sbin`, `usr/lib`."""
    return _unpacked("slurm", NEEDED_FOR_SLURM, progress)


def _unpacked(name: str, packages: Sequence[str], progress: Progress) -> Path:
    """The files of Debian packages, in the folder `name` of the cache."""

    def build(target: Path) -> None:
        with progress.step(f"unpacking Debian's packages {', '.join(packages)}"):
            if not shell.try_run("apt-cache", "show", *packages):
                shell.run("apt-get", "update")
            shell.run("apt-get", "download", *packages, cwd=target)
            for archive in target.glob("*.deb"):
                shell.run("dpkg-deb", "--extract", archive, target)
                archive.unlink()

    return cache.entry(f"deb/{name}", build)


def _present(proof: str) -> bool:
    return any(Path("/").glob(proof[1:])) if proof.startswith("/") else shutil.which(proof) is not None


def main() -> None:
    """Install the packages that the tests need in addition to a cluster's."""
    try:
        ensure(Progress(), NEEDED_FOR_TESTS)
    except DevclusterError as error:
        sys.exit(f"packages: {error}")


if __name__ == "__main__":
    main()

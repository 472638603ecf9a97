"""Makes the images that no registry has: `pause`, which every pod needs, and the base of the project's images.

Both are archives in the cache. The base is a minimal Debian with Python from the machine's Debian mirror; its folder is
kept too, because torch is compiled with the same Python that will run it. `with_packages` makes an image as a user's
would be, with more packages installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache, machine, oci, shell
from devcluster.progress import Progress

PAUSE_REF = "docker.io/local/pause:1"
PAUSE_SOURCE = Path(__file__).parent / "tools" / "pause" / "pause.c"
BASE_REF = "docker.io/local/base:1"
BASE_SUITE = "bookworm"
BASE_PYTHON = "3.11"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
PACKAGES_INSIDE = f"usr/local/lib/python{BASE_PYTHON}/dist-packages"
# Contents that do not belong in an image: kernel file systems, package lists, debootstrap's downloads, and ldconfig's
# cache, the only file that differs each time.
LEFT_OUT_BELOW = (
    "dev/",
    "proc/",
    "sys/",
    "var/cache/apt/",
    "var/cache/ldconfig/",
    "var/lib/apt/lists/",
    "var/log/",
    "tmp/",
)


@dataclass(frozen=True, slots=True)
class Base:
    """The base image: its folder of files and its archive."""

    rootfs: Path
    archive: Path


def pause(progress: Progress) -> Path:
    """The archive of the pause image, compiled from our own source."""

    def build(folder: Path) -> None:
        machine.ensure(progress)
        with progress.step("building the pause image"):
            rootfs = folder / "rootfs"
            rootfs.mkdir()
            shell.run("gcc", "-Os", "-static", "-s", "-o", rootfs / "pause", PAUSE_SOURCE)
            oci.write_archive(folder / "pause.tar", rootfs=rootfs, ref=PAUSE_REF, entrypoint=["/pause"])

    name = cache.key_of_files([PAUSE_SOURCE], relative_to=PAUSE_SOURCE.parent, extra=[PAUSE_REF, oci.FORMAT])
    return cache.entry(f"images/pause-{name}", build) / "pause.tar"


def base(progress: Progress) -> Base:
    """The base image of the project's Dockerfile and of test pods, by debootstrap."""

    def build(folder: Path) -> None:
        machine.ensure(progress)
        with progress.step(
            f"making the base image (Debian {BASE_SUITE} with Python, about 1 minute, only the first time)"
        ):
            rootfs = folder / "rootfs"
            debootstrap(rootfs, include=BASE_PACKAGES)
            # The archives of packages are not needed any more.
            shell.run("chroot", rootfs, "apt-get", "clean")
            oci.write_archive(folder / "base.tar", rootfs=rootfs, ref=BASE_REF, leave_out=left_out)

    name = cache.key([BASE_SUITE, *BASE_PACKAGES, BASE_REF, oci.FORMAT, *LEFT_OUT_BELOW])
    folder = cache.entry(f"images/base-{name}", build)
    return Base(rootfs=folder / "rootfs", archive=folder / "base.tar")


def with_packages(progress: Progress, *, packages: Path, ref: str) -> Path:
    """The archive of an image `ref`: the base, and the packages of this folder where Debian's Python finds them."""
    found = base(progress)

    def build(folder: Path) -> None:
        with progress.step(f"making the image {ref}"):
            rootfs = folder / "rootfs"
            # Hard links are enough, since the files are only read, and then removed.
            shell.run("cp", "--archive", "--link", found.rootfs, rootfs)
            shell.run("cp", "--archive", "--link", f"{packages}/.", rootfs / PACKAGES_INSIDE)
            oci.write_archive(folder / "image.tar", rootfs=rootfs, ref=ref, leave_out=left_out)
            shell.run("rm", "--recursive", rootfs)

    name = cache.key([found.archive.parent.name, packages.name, ref])
    entry = cache.entry(f"images/packages-{name}", build)
    cache.keep_newest(entry, beginning="packages-", count=1)
    return entry / "image.tar"


def debootstrap(target: Path, *, include: Sequence[str]) -> None:
    """A minimal Debian with these packages, in the folder `target`."""
    # debootstrap mounts /proc there: in a separate mount namespace, no mount remains if it is stopped.
    apart = ("unshare", "--mount", "--propagation", "private")
    what = ("--variant=minbase", f"--include={','.join(include)}", BASE_SUITE)
    shell.run(*apart, "debootstrap", *what, target, *_debian_mirror())


def left_out(path: str) -> bool:
    """Whether a path of the base's folder stays out of the image; the folders themselves stay in."""
    return path.startswith(LEFT_OUT_BELOW)


def _debian_mirror() -> list[str]:
    """The Debian mirror that this machine's apt uses, as debootstrap's argument; nothing where apt knows none."""
    wanted = "Origin: Debian"
    targets = shell.run("apt-get", "indextargets", "--format", "$(REPO_URI)", wanted, "Label: Debian", check=False)
    return targets.split()[:1]

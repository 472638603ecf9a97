"""A machine with nothing on it but Debian, Python and make: namespaces of its own with a pristine root.

It reaches package registries as this machine does, and its copy of the project's cache has all that takes long to
build, but no package is installed and no uv. When it is switched off, nothing of it is left.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache, images

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("python3", "make")
PROJECT = "/root/elastic-pytorch"
# How this machine reaches registries: files, and variables of the environment.
SETTINGS = ("/etc/apt", "/etc/hosts", "/etc/pip.conf", "/etc/resolv.conf", "/etc/uv", "~/.config/pip", "~/.config/uv")
REGISTRIES = re.compile(r"((HTTPS?|ALL|NO)_PROXY|(PIP|UV)_\w+|SSL_CERT_\w+|\w+_CA_BUNDLE)", re.IGNORECASE)
CERTIFICATES = ("SSL_CERT_FILE", "PIP_CERT")
# What was downloaded before, by programs that know it again: shared, not copied.
DOWNLOADS = ("~/.cache/pip", "~/.cache/uv")
BUILT = ("bin", "deb", "go", "images", "node-disks", "torch")
# A shell as process 1: it waits for the processes that others leave behind.
ANCHOR = """
set -e
root=$1; shift
for folder in dev sys; do mount --rbind /$folder $root/$folder; done
mount -t proc proc $root/proc
mount -t tmpfs tmpfs $root/run
for pair in "$@"; do mkdir -p "$root/${pair#*:}"; mount --bind "${pair%%:*}" "$root/${pair#*:}"; done
cd $root
pivot_root . .
umount -l .
echo ready
sleep infinity & wait
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and all it said."""

    status: int
    said: str


@dataclass(frozen=True, slots=True)
class BareMachine:
    """Switched on. `pid` is its process 1."""

    pid: int

    def run(self, command: str, *, seconds: float) -> Done:
        """What the person types, in the project's folder."""
        enter = (
            "nsenter",
            f"--target={self.pid}",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            f"--root=/proc/{self.pid}/root",
        )
        done = subprocess.run(
            [*enter, f"--wd=/proc/{self.pid}/root{PROJECT}", "sh", "-c", command],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        return Done(done.returncode, done.stdout)


@contextmanager
def switched_on() -> Iterator[BareMachine]:
    """The machine, as new."""
    pristine = cache.entry(f"machines/debian-{cache.key([images.BASE_SUITE, *PACKAGES])}", _install)
    with tempfile.TemporaryDirectory(prefix="bare-", dir=pristine.parent) as folder:
        disk = Path(folder)
        changes, work, root, own_cache = (disk / name for name in ("changes", "work", "root", "cache"))
        for each in (work, root, own_cache):
            each.mkdir()
        _copy_settings(changes)
        _copy_project(changes / PROJECT.lstrip("/"))
        for name in BUILT:
            if (cache.root() / name).exists():
                subprocess.run(["cp", "--archive", "--link", cache.root() / name, own_cache], check=True)
        layers = f"lowerdir={pristine}/root,upperdir={changes},workdir={work}"
        binds = [f"{own_cache}:{cache.root()}", *(f"{each}:{each}" for each in _folders(DOWNLOADS))]
        script = f"mount -t overlay overlay -o {layers} {root}\n{ANCHOR}"
        unshare = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--uts", "--ipc")
        with subprocess.Popen(
            [*unshare, "sh", "-c", script, "anchor", root, *binds], stdout=subprocess.PIPE, text=True
        ) as anchor:
            try:
                assert anchor.stdout is not None
                assert anchor.stdout.readline() == "ready\n"
                children = Path(f"/proc/{anchor.pid}/task/{anchor.pid}/children").read_text().split()
                yield BareMachine(int(children[0]))
            finally:
                anchor.kill()


def _install(folder: Path) -> None:
    images.debootstrap(folder / "root", include=PACKAGES)


def _folders(names: tuple[str, ...]) -> list[Path]:
    paths = [Path(name).expanduser() for name in names]
    return [path for path in paths if path.exists()]


def _copy_settings(target: Path) -> None:
    for path in _folders(SETTINGS):
        _copy(path, target / path.relative_to("/"))
    for name in CERTIFICATES:
        if (file := os.environ.get(name)) and Path(file).is_file():
            _copy(Path(file), target / file.lstrip("/"))
            # Debian's package of authorities makes its file anew, from what it has and what is here.
            _copy(Path(file), target / f"usr/local/share/ca-certificates/{name.lower()}.crt")


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(path, target)


def _copy_project(target: Path) -> None:
    """The files that git knows, or would add: no virtual environment, nothing that was built."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=REPOSITORY, text=True).split("\0"):
        if name and (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)


def _environment() -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if REGISTRIES.fullmatch(name)}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return given | {"HOME": str(Path.home()), "PATH": path, "LANG": "C.UTF-8"}

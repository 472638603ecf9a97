"""Puts a release together, in one folder: the same commit gives the same files, byte for byte."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from devcluster import machine, packages, shell, uv
from devcluster.images import base
from devcluster.progress import Progress
from release import archives, chart, images, sbom, source
from release.changelog import section
from release.source import Wanted

DISTRIBUTIONS = tuple(f"elastic-pytorch-{name}" for name in ("api", "client", "operator", "worker"))


def release(wanted: Wanted, *, repository: Path, target: Path, progress: Progress) -> Path:
    """Make the release of the last commit in the folder `target`/VERSION, and return that; it replaces one there."""
    machine.ensure(progress)
    packages.ensure(progress, {"git": "git"})
    with tempfile.TemporaryDirectory() as scratch:
        commit = source.export(repository, Path(scratch) / "source", progress)
        source.check_version(commit.folder, wanted.version)
        made = Path(scratch) / wanted.version
        made.mkdir()
        (made / "CHANGELOG.md").write_text(section(repository, wanted.version, epoch=commit.epoch))
        wheels(commit, made, progress)
        digests = {}
        for image in images.IMAGES:
            with progress.step(f"building {image.repository} (a few minutes)"):
                archive = made / images.archive_name(image)
                digests[image] = images.build(image, archive, wanted, commit, base=base(progress))
            with progress.step(f"listing what is in {image.repository}"):
                sbom.write(archive, wanted, commit, progress)
        chart.write(made, wanted, commit, digests)
        (made / "digests.txt").write_text(images.table(digests, wanted))
        (made / "SHA256SUMS").write_text(checksums(made))
        final = target / wanted.version
        shutil.rmtree(final, ignore_errors=True)
        return Path(shutil.copytree(made, final))


def wheels(commit: source.Source, made: Path, progress: Progress) -> None:
    """Build all packages; the builder is pinned in their pyproject.toml and takes the files' times from the commit."""
    program = uv.ensure(progress)
    for name in DISTRIBUTIONS:
        words = ("--wheel", "--package", name, "--out-dir", made, "--no-create-gitignore", "--quiet")
        shell.run(program, "build", *words, cwd=commit.folder, env=archives.environment(commit.epoch))


def checksums(folder: Path) -> str:
    """What `sha256sum --check SHA256SUMS` reads: all files of a folder."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)

"""Reads the folder that `run --code DIR` ships: its files without the ignored ones, their size, and their hash.

A file that no pattern ignores is never left out silently. A file that cannot be shipped is refused, with the pattern
that would ignore it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_client.convert.converted import ConvertError
from elastic_client.words import counted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".elasticignore"
IGNORED = (
    ".git",
    ".hg",
    ".svn",
    ".env",
    ".env.*",
    ".envrc",
    ".netrc",
    ".aws/",
    ".kube/",
    ".ssh/",
    "id_rsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    ".venv",
    "venv/",
    "node_modules/",
    "__pycache__/",
    "*.pyc",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".DS_Store",
    "/checkpoints/",
    f"/{IGNORE_FILE}",
)
"""Patterns before those of the folder's own file, which may revert any of them by `!`.

Files that often contain secrets are among them, because a ConfigMap is not a Secret. A folder `checkpoints` further
down may be a package.
"""
MOST_BYTES = 1_000_000
"""A ConfigMap takes 1 MiB of contents."""
MOST_FILES = 500
"""Each file is an entry of the job and of each of its pods."""
MOST_SEEN = 50_000
"""The most files that are examined. A home directory has more, and would take minutes."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class File:
    """A file by its path in the folder, with `/`. `is_program`: its owner may execute it."""

    path: str
    content: bytes
    is_program: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """A folder's files, by path. `name` is the folder's last component, since its whole path is private."""

    name: str
    files: tuple[File, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all paths, modes and contents: equal files have an equal digest in any folder."""
        found = hashlib.sha256()
        for file in self.files:
            head = (file.path, "x" if file.is_program else "-", str(len(file.content)))
            found.update("\0".join(head).encode() + b"\0" + file.content)
        return found.hexdigest()

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(len(file.content) for file in self.files)

    def __str__(self) -> str:
        return f"{self.name}, {counted(len(self.files), 'file')}, {amount(self.size)}, sha256:{self.digest}"


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    size: int
    is_program: bool


def read(folder: str | Path) -> Code:
    """The files of a folder that no pattern ignores.

    Raises:
        ConvertError: the folder does not exist, has no files or more than fit, or has a file that cannot be shipped.
    """
    root = Path(folder)
    flag = f"--code {folder}"
    if not root.is_dir():
        raise ConvertError(f"{flag}: is no folder: write the one with your script, such as --code .")
    found = []
    for file in _files(root, "", _ignored(root, flag), flag):
        found.append(file)
        if len(found) > MOST_SEEN:
            message = f"has more than {MOST_SEEN:,} files: name a smaller folder"
            raise ConvertError(f"{flag}: {message}, or leave some out by lines of {root / IGNORE_FILE}")
    _check(found, root, flag)
    files = tuple(
        File(entry.path, _content(root, entry.path, flag), entry.is_program) for entry in sorted(found, key=_path)
    )
    _check([_Found(file.path, len(file.content), file.is_program) for file in files], root, flag)  # it may have grown
    return Code(root.resolve().name or "/", files)


def amount(size: int) -> str:
    """A number of bytes as text: `812 B`, `34 kB`, `3.4 MB`."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1_000_000:.1f} MB"


def _path(found: _Found) -> str:
    return found.path


def _ignored(root: Path, flag: str) -> GitIgnoreSpec:
    """The ignored files, by git's rules: the last matching pattern counts. Raises ConvertError."""
    from pathspec import GitIgnoreSpec

    own = root / IGNORE_FILE
    try:
        lines = own.read_text(encoding="utf-8").splitlines() if own.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"{flag}: {own}: {error}: write patterns as in .gitignore, in UTF-8") from None
    try:
        return GitIgnoreSpec.from_lines([*IGNORED, *lines])
    except ValueError as error:
        raise ConvertError(f"{flag}: {own}: {error}: write patterns as in .gitignore") from None


def _files(root: Path, folder: str, ignored: GitIgnoreSpec, flag: str) -> Iterator[_Found]:
    try:
        entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ConvertError(f"{flag}: {folder or '.'}: {error.strerror}{_leave_out(f'{folder}/', root)}") from None
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignored.match_file(f"{path}/" if is_folder else path):
            continue
        if is_folder:
            yield from _files(root, path, ignored, flag)
        elif (wrong := _wrong(root, path)) is not None:
            raise ConvertError(f"{flag}: {path!r}: {wrong}{_leave_out(path, root)}")
        else:
            info = (root / path).stat()
            yield _Found(path, info.st_size, bool(info.st_mode & stat.S_IXUSR))


def _wrong(root: Path, path: str) -> str | None:
    """Why a file cannot be shipped."""
    whole = root / path
    try:
        path.encode()
        target = whole.resolve(strict=True)
        info = target.stat()
    except UnicodeEncodeError:
        return "its name is no UTF-8"
    except (OSError, RuntimeError):  # a loop of links, before Python 3.13
        return "the link leads nowhere" if whole.is_symlink() else "cannot be read"
    if whole.is_symlink() and not target.is_relative_to(root.resolve()):
        return "the link leads out of the folder"
    if stat.S_ISDIR(info.st_mode):
        return "is a link to a folder, and a ConfigMap has no links"
    if path.startswith(".."):
        return "Kubernetes takes no path that begins with two dots"
    return None if stat.S_ISREG(info.st_mode) else "is no file"


def _leave_out(path: str, root: Path) -> str:
    return f": write {path} into {root / IGNORE_FILE} to leave it out"


def _content(root: Path, path: str, flag: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise ConvertError(f"{flag}: {path}: {error.strerror}{_leave_out(path, root)}") from None


def _check(found: Sequence[_Found], root: Path, flag: str) -> None:
    """Raise ConvertError for no files, and for more than a job can carry."""
    if not found:
        raise ConvertError(f"{flag}: has no files, but for those that are left out: name the folder with your script")
    size = sum(entry.size for entry in found)
    if size > MOST_BYTES:
        largest = sorted(found, key=lambda entry: (-entry.size, entry.path))[:SHOWN]
        message = ", ".join(f"{entry.path} ({amount(entry.size)})" for entry in largest)
        raise ConvertError(
            f"{flag}: has {size:,} bytes, and a ConfigMap takes {MOST_BYTES:,}; the largest: {message}: write"
            f" {_pattern(largest[0].path)} into {root / IGNORE_FILE}, and put data on a volume or into the image"
        )
    if len(found) > MOST_FILES:
        folders: dict[str, int] = {}
        for entry in found:
            name = _pattern(entry.path)
            folders[name] = folders.get(name, 0) + 1
        fullest = max(folders, key=lambda name: (folders[name], name))
        raise ConvertError(
            f"{flag}: has {len(found)} files, and a job takes {MOST_FILES}; {folders[fullest]} are in {fullest}: write"
            f" what is not needed into {root / IGNORE_FILE}, or put it into the image"
        )


def _pattern(path: str) -> str:
    """The pattern that would ignore the file, or the top-level folder that it is in."""
    folder, slash, _ = path.partition("/")
    return f"/{folder}{slash}"

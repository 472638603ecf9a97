"""Finds the runs of this machine by name: each has two small files in a folder of the user.

`NAME.json` describes the run. The run keeps it locked while it runs, so the file of a killed run does not count.
`NAME.size` is the wanted size, like `spec.minReplicas` and `maxReplicas` of a job: `scale` replaces it, and the run
reads it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from elastic_client.exits import ClientError, Code
from elastic_client.words import near

TRIES = 5
TRY_SECONDS = 0.05
"""The pause between two tries to lock a file: another process may only be testing the lock."""
FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Sizes:
    """The fewest and the most pods, the master included."""

    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its process, and the number of pods that fit on this machine; None: no limit."""

    name: str
    pid: int
    room: int | None = None
    gpus_each: int = 0


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the files. It need not exist."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "elastic-pytorch"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "elastic-pytorch" / "runs"


@contextmanager
def held(run: Run, sizes: Sizes, *, at: Path) -> Iterator[None]:
    """Make the run findable within this context. Raises ClientError, USAGE if another run has its name."""
    at.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with _locked(run.name, at) as file:
        write_sizes(run.name, sizes, at=at)
        file.write(json.dumps(asdict(run)))
        file.flush()
        try:
            yield
        finally:
            _sizes_file(run.name, at).unlink(missing_ok=True)
            _file(run.name, at).unlink(missing_ok=True)


def find(name: str, *, at: Path) -> Run | None:
    """The live run of that name; None if there is none."""
    return _read(_file(name, at))


def only(size: str, *, at: Path) -> Run:
    """The only live run, for `scale SIZE` without a name. Raises ClientError if there is none, or several."""
    runs = [run for file in sorted(at.glob("*.json")) if (run := _read(file))]
    if len(runs) == 1:
        return runs[0]
    if not runs:
        message = f"JOB: nothing trains here by `run --local` ({at}); write a job's name, as in `scale toy {size}`"
        raise ClientError(Code.NOT_FOUND, message)
    names = [run.name for run in runs]
    raise ClientError(Code.USAGE, f"JOB: several train here: {near('', names)}; write one before {size}")


def read_sizes(name: str, *, at: Path) -> Sizes:
    """The wanted sizes of the run. Raises OSError, ValueError if the file is missing or invalid."""
    stored = json.loads(_sizes_file(name, at).read_text())
    return Sizes(int(stored["fewest"]), int(stored["most"]))


def write_sizes(name: str, sizes: Sizes, *, at: Path) -> None:
    """Replace the file atomically, since the run may read it at any time."""
    target = _sizes_file(name, at)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(asdict(sizes)))
    unfinished.replace(target)


def _file(name: str, at: Path) -> Path:
    return at / f"{name}.json"


def _sizes_file(name: str, at: Path) -> Path:
    return at / f"{name}.size"


@contextmanager
def _locked(name: str, at: Path) -> Iterator[IO[str]]:
    """The file of that name, empty and locked. Raises ClientError, USAGE if another process holds it."""
    path = _file(name, at)
    for _ in range(TRIES):
        with path.open("a") as file:
            if _lock(file) and _is_still(path, file):  # its last holder may have removed it meanwhile
                file.truncate(0)
                yield file
                return
        time.sleep(TRY_SECONDS)
    other = _read(path)
    who = f"process {other.pid}" if other else "another process"
    raise ClientError(
        Code.USAGE, f"--name {name}: {who} is a run of that name: write another --name, or end it by Ctrl-C"
    )


def _lock(file: IO[str]) -> bool:
    """Try to lock the file until it is closed; returns whether that worked."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _read(path: Path) -> Run | None:
    """The run of that file; None if no process holds it."""
    with suppress(OSError, ValueError, TypeError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Run(**json.load(file))
    return None


def _is_still(path: Path, file: IO[str]) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False

"""Runs a program and reports its failure in one line: the command, the program's last line, and the remedy.

All its output is in a file of the cache. If this process gets a signal to stop, a running program gets it, too, and
this process waits for its end: apt, for example, must not be interrupted in the middle of a package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from devcluster import cache
from devcluster.errors import DevclusterError

SHOWN_CHARACTERS = 160
STOP_SECONDS = 15.0
DISK_FULL = "the disk is full: free some space, then run it again"
# Texts in programs' output -> the remedy.
REMEDIES = {
    r"No space left on device|Disk quota exceeded": DISK_FULL,
    r"Temporary failure|[Cc]ould not (resolve|connect)|Unable to connect|[Nn]etwork is unreachable|dial tcp"
    r"|Failed to fetch|error sending request|Failed to establish a new connection|[Cc]onnection (refused|timed out)": (
        "look at the network and the proxy settings, then run it again"
    ),
    r"unexpected EOF|IncompleteRead|Hash Sum mismatch|checksum mismatch|do not match the hashes": (
        "a download was interrupted or is damaged: run it again"
    ),
    r"timed out waiting|context deadline exceeded": "is the machine too busy? Run it again, from `make down` on",
    r"CERTIFICATE_VERIFY_FAILED|unknown authority|UnknownIssuer": (
        "where a proxy has a certificate authority of its own, name its file in SSL_CERT_FILE and PIP_CERT"
    ),
    r"Could not get lock": "another apt is running: wait until it has ended, then run it again",
}


def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    input_text: str = "",
) -> str:
    """Standard output of `command`. Raises DevclusterError if there is no such program, or with `check` if it fails."""
    pipe = subprocess.PIPE
    with _started(command, env=env, cwd=cwd, stdin=pipe, stderr=pipe) as process:
        output, complaint = process.communicate(input_text)
    if check and process.returncode:
        raise _failure(command, process.returncode, output + complaint)
    return output


def run_aloud(
    *command: str | Path,
    hear: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run `command` and call `hear` with each line of its output. Raises DevclusterError as `run` does."""
    said = []
    with _started(command, env=env, cwd=cwd) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            hear(line.rstrip())
    if process.returncode:
        raise _failure(command, process.returncode, "".join(said))


def try_run(*command: str | Path, env: Mapping[str, str] | None = None) -> bool:
    """Whether `command` succeeded; its output is dropped."""
    with _started(command, env=env) as process:
        process.communicate()
    return process.returncode == 0


def keep(name: str, text: str) -> str:
    """Write text for the user to a file of the cache; return its path, "" if that is impossible."""
    try:
        file = cache.root() / "logs" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    except OSError:
        return ""
    return str(file)


@contextmanager
def _started(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
) -> Iterator[subprocess.Popen[str]]:
    """Run the program within this context; it has ended at any exit from the context."""
    if shutil.which(command[0]) is None:
        raise DevclusterError(f"there is no program {str(command[0])!r} here: install it, or put its folder on PATH")
    with subprocess.Popen(
        command,
        env=None if env is None else os.environ | env,
        cwd=cwd,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
    ) as process:
        try:
            yield process
        except BaseException:
            _stop(process)
            raise


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _failure(command: Sequence[str | Path], status: int, said: str) -> DevclusterError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    program = Path(command[0]).name
    parts = [f"`{_cut(' '.join(map(str, command)))}` failed ({status}): {_cut(_verdict(lines), 3 * SHOWN_CHARACTERS)}"]
    parts += [remedy for pattern, remedy in REMEDIES.items() if re.search(pattern, said)][:1]
    if len(lines) > 1 and (log := keep(f"{program}.log", said)):
        parts.append(f"its whole output is in {log}")
    return DevclusterError("; ".join(parts))


def _verdict(lines: Sequence[str]) -> str:
    """The last line that reports an error, else the last line."""
    errors = [line for line in lines if re.match(r"E:|error\b|fatal\b|go:", line, re.IGNORECASE)]
    return (errors or lines or ["it printed nothing"])[-1]


def _cut(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= characters else text[: characters - 3] + "..."

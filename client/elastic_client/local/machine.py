"""Finds this machine's resources for a run: a python with torch, GPUs, and free ports."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from elastic_client.exits import ClientError, Code
from elastic_worker.contract import OLDEST_PYTHON, OLDEST_TORCH

PYTHONS = ("python3", "python")
"""The names that are searched on PATH, in this order, as by the operator in an image."""
ANSWER_SECONDS = 120
"""The time limit for a python's answer: the first import of torch from a slow disk takes a minute."""
PORTS = range(20_000, 32_000)
"""Ports below the kernel's ephemeral ones."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Only a torch that was built for GPUs is imported, since that takes seconds: it alone knows which GPUs it can use.
_QUESTION = """\
import importlib.util, json, os, runpy, sys
found = {"python": sys.version_info[:2], "executable": sys.executable, "torch": None, "gpus": 0}
spec = importlib.util.find_spec("torch")
if spec and spec.origin and spec.submodule_search_locations:
    about = {}
    try:
        about = runpy.run_path(os.path.join(spec.submodule_search_locations[0], "version.py"))
    except OSError:
        pass
    found["torch"] = about.get("__version__", "")
    if about.get("cuda") or about.get("hip"):
        import torch
        found["gpus"] = torch.cuda.device_count()
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """`python` is the path of the python that trains, `torch` its torch's version, `gpus` the names of its GPUs."""

    python: str
    torch: str
    gpus: tuple[str, ...] = ()


def look(python: str, environ: Mapping[str, str]) -> Machine:
    """The machine with `python`; if that is "", with the first python on PATH that can train.

    Raises:
        ClientError: USAGE if this is not Linux, or no python can train; it names the missing part.
    """
    if sys.platform != "linux":
        raise ClientError(Code.USAGE, "--local: the launcher needs Linux: run it in a container or a virtual machine")
    path = environ.get("PATH", os.defpath)
    unfit: list[str] = []
    for name in [python] if python else PYTHONS:
        found = shutil.which(name, path=path)
        answer = _ask(found, environ) if found else "there is no such program on PATH"
        if isinstance(answer, Machine):
            return answer
        unfit.append(f"{found or name}: {answer}")
    remedy = "write another, such as --python ~/venv/bin/python" if python else "name one that has it by --python"
    raise ClientError(Code.USAGE, f"--python: no python can train: {'; '.join(unfit)}; {remedy}")


def cards(number: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of that many GPUs: those in CUDA_VISIBLE_DEVICES, else their numbers."""
    chosen = [card.strip() for card in environ.get(VISIBLE, "").split(",") if card.strip()]
    return tuple(chosen[:number]) if len(chosen) >= number else tuple(map(str, range(number)))


def ports(first: int | None) -> tuple[int, int]:
    """Ports for the coordinator and for the master's /status: `first` and the next one, or any that are free.

    Raises:
        ClientError: USAGE if one of the two is in use.
    """
    if first is not None:
        if taken := [port for port in (first, first + 1) if not _is_free(port)]:
            message = f"--port {first}: a process listens at {taken[0]}"
            raise ClientError(Code.USAGE, f"{message}: write another, or leave --port out to get free ones")
        return first, first + 1
    free = (port for port in random.sample(PORTS, len(PORTS)) if _is_free(port))
    return next(free), next(free)


def _ask(python: str, environ: Mapping[str, str]) -> Machine | str:
    """The versions and GPUs of that python, or a sentence on why it cannot train."""
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION],
            env=dict(environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"it does not answer within {ANSWER_SECONDS} s"
    except OSError as error:
        return f"it cannot be run: {error.strerror}"
    except (ValueError, IndexError):
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        return f"its torch cannot be imported: {last[0]}"
    if tuple(found["python"]) < OLDEST_PYTHON:
        return f"it is Python {_dotted(found['python'])}, and {_dotted(OLDEST_PYTHON)} or later is needed"
    if found["torch"] is None:
        return "it has no torch: `pip install torch` there"
    if _is_old(found["torch"]):
        return f"it has torch {found['torch']}, and {_dotted(OLDEST_TORCH)} or later is needed"
    return Machine(python, found["torch"], cards(found["gpus"], environ))


def _is_old(version: str) -> bool:
    """A version that cannot be read counts as new."""
    with suppress(ValueError):
        return tuple(map(int, version.split(".")[:2])) < OLDEST_TORCH
    return False


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError, OverflowError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
        return True
    return False

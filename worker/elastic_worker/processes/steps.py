"""Counts the optimizer steps of a script that knows nothing of us.

The training process writes to a file mapped into memory, by a hook that torch calls after each `step()` of any
optimizer; the launcher reads the file. Steps inside a compiled region (`torch.compile` around `optimizer.step`) and
replayed CUDA graphs are not seen.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

OPTIMIZERS = "torch.optim.optimizer"
LAYOUT = struct.Struct("=qdd")
"""Count, then monotonic seconds of the first and of the last step."""


class Steps(NamedTuple):
    """Optimizer steps so far; times are the machine's monotonic seconds, None before the first."""

    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    last: float | None = None
    first: float | None = None


def create(path: Path) -> None:
    """Make the file of a process that is about to start."""
    path.write_bytes(bytes(LAYOUT.size))


def read(path: Path) -> Steps:
    """Read the counter; zero steps if the file is missing."""
    try:
        count, first, last = LAYOUT.unpack(path.read_bytes())
    except (FileNotFoundError, struct.error):
        return Steps()
    return Steps(count, last=last or None, first=first or None)


def install(path: str) -> None:
    """In the training process: count from now on, without importing torch if the script does not."""
    count = _counter(path)
    optimizers = sys.modules.get(OPTIMIZERS)
    if optimizers is not None:
        _register(optimizers, count)
    else:
        sys.meta_path.insert(0, _WhenImported(count))


def _counter(path: str) -> Callable[[], None]:
    """Each number is written by itself, so that a reader never sees half of one."""
    with Path(path).open("r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), LAYOUT.size))
    counts, times, monotonic = view.cast("q"), view.cast("d"), time.monotonic

    def count() -> None:
        now = times[2] = monotonic()
        if not counts[0]:
            times[1] = now
        counts[0] += 1

    return count


def _register(optimizers: ModuleType, count: Callable[[], None]) -> None:
    """Register the hook. torch.compile folds is_compiling() to True, so it traces nothing of it."""
    torch = sys.modules["torch"]

    def after_step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            count()

    optimizers.register_optimizer_step_post_hook(after_step)


class _WhenImported(MetaPathFinder):
    """Registers the hook at the moment the script imports torch's optimizers."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def find_spec(self, fullname: str, *_where: Any) -> ModuleSpec | None:
        if fullname != OPTIMIZERS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader, self._count)
        return spec


class _ThenRegister(Loader):
    """The module's own loader, and the hook afterwards."""

    def __init__(self, loader: Loader, count: Callable[[], None]) -> None:
        self._loader, self._count = loader, count

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        _register(module, self._count)

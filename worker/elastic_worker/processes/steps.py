"""Counts the optimizer steps of a script that does not use our library, and asks it for a checkpoint after a step.

The training process writes to a file mapped into memory, in a hook that torch calls after each `step()` of any
optimizer; the launcher reads the file. Steps inside a compiled region (`torch.compile` around `optimizer.step`) and
replayed CUDA graphs are not counted.

The launcher also writes to the file: the step after which the process waits (`propose`), and that the script is asked
for a checkpoint there (`agree`). A process that has not passed the proposed step cannot pass it without waiting (132).
Once the script has taken the request, the process waits before its next step: the launcher needs a moment to see that
the checkpoint is complete, and steps done in that moment would be lost.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

OPTIMIZERS = "torch.optim.optimizer"
LAYOUT = struct.Struct("=qddqqq")
"""Step count; monotonic seconds of the first and of the last step; the steps proposed, agreed on, and waited at."""
PROPOSED, AGREED, WAITS_AT = 3, 4, 5
NUMBER = struct.Struct("=q")
AGREE_SECONDS = 15.0
"""The longest that a process waits to learn whether a step is agreed on.

If a pod's connection to the coordinator breaks in this time, the pod counts as lost after 5 s, or learns the answer
when it has reconnected. A process that continued before that would save at another step than the other ranks.
"""
STOP_SECONDS = 5.0
"""The longest that a process waits to be stopped after its script has taken the request."""
LOOK_SECONDS = 0.001


class Steps(NamedTuple):
    """Optimizer steps so far. Times are the machine's monotonic seconds, None before the first step."""

    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    last: float | None = None
    first: float | None = None
    waits_at: int = 0
    """The last step after which the process waited, or waits, to learn whether it is agreed on; 0 for none."""


def create(path: Path) -> None:
    """Make the step file of a process that is about to start."""
    path.write_bytes(bytes(LAYOUT.size))


def read(path: Path) -> Steps:
    """Read the step file; `Steps()` if it does not exist."""
    try:
        count, first, last, _, _, waits_at = LAYOUT.unpack(path.read_bytes())
    except (FileNotFoundError, struct.error):
        return Steps()
    return Steps(count, last=last or None, first=first or None, waits_at=waits_at)


def propose(path: Path, step: int) -> None:
    """Let the process wait after that step, if it has not passed the step; 0 withdraws the proposal."""
    _write(path, PROPOSED, step)


def agree(path: Path, step: int) -> None:
    """Let the process ask its script for a checkpoint after that step, which was proposed."""
    _write(path, AGREED, step)


def _write(path: Path, place: int, number: int) -> None:
    """Write one number by itself, so that the process never sees half of it. No effect if the process has ended."""
    with suppress(FileNotFoundError), path.open("r+b", buffering=0) as file:
        file.seek(place * NUMBER.size)
        file.write(NUMBER.pack(number))


class Request(Protocol):
    """Asks the script for a checkpoint."""

    def make(self) -> None: ...
    def is_taken(self) -> bool: ...


class Hooks(NamedTuple):
    """The functions to call around each step of an optimizer."""

    before: Callable[[], None]
    after: Callable[[], None]


def install(path: str, request: Request) -> None:
    """Begin to count the steps of this training process in the file `path`. Does not import torch before the script."""
    hooks = _hooks(path, request)
    optimizers = sys.modules.get(OPTIMIZERS)
    if optimizers is not None:
        _register(optimizers, hooks)
    else:
        sys.meta_path.insert(0, _WhenImported(hooks))


def _hooks(path: str, request: Request) -> Hooks:
    """Return the hooks. They write each number by itself, so that a reader never sees half of one."""
    with Path(path).open("r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), LAYOUT.size))
    counts, times, monotonic = view.cast("q"), view.cast("d"), time.monotonic

    asked_after = 0

    def before() -> None:
        nonlocal asked_after
        if asked_after and request.is_taken():
            step, asked_after = asked_after, 0
            _wait_while(lambda: counts[PROPOSED] == step, STOP_SECONDS)

    def after() -> None:
        nonlocal asked_after
        now = times[2] = monotonic()
        if not counts[0]:
            times[1] = now
        counts[0] = step = counts[0] + 1
        if step == counts[AGREED] or (step == counts[PROPOSED] and _is_agreed(counts, step)):
            asked_after = step
            request.make()

    return Hooks(before, after)


def _is_agreed(counts: memoryview, step: int) -> bool:
    """Wait for the answer to the proposal of the present step; return whether a checkpoint is to follow it."""
    counts[WAITS_AT] = step
    _wait_while(lambda: counts[PROPOSED] == step and counts[AGREED] != step, AGREE_SECONDS)
    return bool(counts[AGREED] == step)


def _wait_while(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while holds() and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _register(optimizers: ModuleType, hooks: Hooks) -> None:
    """Register the hooks. torch.compile folds is_compiling() to True, and so leaves them out of its traces."""
    torch = sys.modules["torch"]

    def before_step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            hooks.before()

    def after_step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            hooks.after()

    optimizers.register_optimizer_step_pre_hook(before_step)
    optimizers.register_optimizer_step_post_hook(after_step)


class _WhenImported(MetaPathFinder):
    """Registers the hooks at the moment the script imports torch's optimizers."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def find_spec(self, fullname: str, *_where: Any) -> ModuleSpec | None:
        if fullname != OPTIMIZERS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader, self._hooks)
        return spec


class _ThenRegister(Loader):
    """Runs the module's original loader, and registers the hooks afterwards."""

    def __init__(self, loader: Loader, hooks: Hooks) -> None:
        self._loader, self._hooks = loader, hooks

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        _register(module, self._hooks)

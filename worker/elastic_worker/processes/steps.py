"""Counts the optimizer steps of a script that knows nothing of us, and asks it for a checkpoint after one of them.

The training process writes to a file mapped into memory, by a hook that torch calls after each `step()` of any
optimizer; the launcher reads the file. Steps inside a compiled region (`torch.compile` around `optimizer.step`) and
replayed CUDA graphs are not seen.

The launcher writes to the file as well: after which step the process waits (`propose`), and that it is agreed to ask
for a checkpoint there (`agree`). A process that has not passed the step when it is proposed cannot pass it unasked
(132). Once the script has taken the request, it waits before its next step: whoever stops it needs a moment to see that
the checkpoint is complete, and what is done in it would be done again.
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
"""Count, monotonic seconds of the first and of the last step; the steps that are proposed, agreed on, and waited at."""
PROPOSED, AGREED, WAITS_AT = 3, 4, 5
NUMBER = struct.Struct("=q")
AGREE_SECONDS = 15.0
"""The longest that a process waits to hear whether a step is agreed on. A pod whose line to the coordinator breaks then
is missed after 5 s, and hears it once it is back; a process that went on before that would save at another step."""
STOP_SECONDS = 5.0
"""The longest that a process that has taken the request waits to be stopped."""
LOOK_SECONDS = 0.001


class Steps(NamedTuple):
    """Optimizer steps so far; times are the machine's monotonic seconds, None before the first."""

    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    last: float | None = None
    first: float | None = None
    waits_at: int = 0
    """The last step after which the process waited, or waits, to hear whether it is agreed on."""


def create(path: Path) -> None:
    """Make the file of a process that is about to start."""
    path.write_bytes(bytes(LAYOUT.size))


def read(path: Path) -> Steps:
    """Read the counter; zero steps if the file is missing."""
    try:
        count, first, last, _, _, waits_at = LAYOUT.unpack(path.read_bytes())
    except (FileNotFoundError, struct.error):
        return Steps()
    return Steps(count, last=last or None, first=first or None, waits_at=waits_at)


def propose(path: Path, step: int) -> None:
    """The process is to wait after that step, if it has not passed it; 0: after none."""
    _write(path, PROPOSED, step)


def agree(path: Path, step: int) -> None:
    """The process is asked for a checkpoint after that step, which was proposed."""
    _write(path, AGREED, step)


def _write(path: Path, place: int, number: int) -> None:
    """One number by itself, so that the process never sees half of it; nothing where it has ended."""
    with suppress(FileNotFoundError), path.open("r+b", buffering=0) as file:
        file.seek(place * NUMBER.size)
        file.write(NUMBER.pack(number))


class Request(Protocol):
    """Asks the script for a checkpoint."""

    def make(self) -> None: ...
    def is_taken(self) -> bool: ...


class Hooks(NamedTuple):
    """What is called around each step of an optimizer."""

    before: Callable[[], None]
    after: Callable[[], None]


def install(path: str, request: Request) -> None:
    """In the training process: count from now on, without importing torch if the script does not."""
    hooks = _hooks(path, request)
    optimizers = sys.modules.get(OPTIMIZERS)
    if optimizers is not None:
        _register(optimizers, hooks)
    else:
        sys.meta_path.insert(0, _WhenImported(hooks))


def _hooks(path: str, request: Request) -> Hooks:
    """Each number is written by itself, so that a reader never sees half of one."""
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
    """Wait until it is agreed that a checkpoint is asked for after the step just done, or that it is not."""
    counts[WAITS_AT] = step
    _wait_while(lambda: counts[PROPOSED] == step and counts[AGREED] != step, AGREE_SECONDS)
    return bool(counts[AGREED] == step)


def _wait_while(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while holds() and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _register(optimizers: ModuleType, hooks: Hooks) -> None:
    """Register the hooks. torch.compile folds is_compiling() to True, so it traces nothing of them."""
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
    """The module's own loader, and the hooks afterwards."""

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

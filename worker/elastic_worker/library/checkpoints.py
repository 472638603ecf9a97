"""Saves the training state beside the training, and finds the newest checkpoint that is complete.

A save copies the tensors to host memory; a thread writes them with torch.distributed.checkpoint, then checksums, then
a rename: a checkpoint is complete or absent. After a failed save `problem` says why, and training goes on. A
folder that holds checkpoints of which none is complete is an error: training never starts from zero by itself.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from elastic_worker.coordinator.succession import Succession
from elastic_worker.library import checkpoint_dcp as dcp
from elastic_worker.library.checkpoint_check import CheckedTogether
from elastic_worker.library.checkpoint_folder import Folder
from elastic_worker.library.checkpoint_save import STRUCTURE, SaveAttempt
from elastic_worker.library.checkpoint_staging import Staging
from elastic_worker.library.checkpoint_state import (
    CheckpointStateError,
    Tensors,
    is_sharded,
    put_together,
    take_apart,
    tensors_of,
)
from elastic_worker.library.checkpoint_write import ElsewhereError, write_alone, write_together
from elastic_worker.library.manifest import Manifest, TornError, WriterOrder

EXIT_SECONDS = 300.0
"""How long a save that is under way may delay the end of the process."""
_NAMED_KEYS = 3

T = TypeVar("T")

logger = logging.getLogger(__name__)


class CheckpointError(Exception):
    """A checkpoint could not be saved, found or loaded; the message says why and what to do."""


@dataclass(frozen=True)
class CompleteCheckpoint:
    """A complete checkpoint; `meta` is what was given to `save`, `order` its writer's (epoch, generation)."""

    path: Path
    step: int
    meta: Mapping[str, Any]
    order: tuple[int, int]


class Checkpoints:
    """Checkpoints in a local or shared folder; one process, or one group, writes at a time."""

    def __init__(self, folder: str | Path, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: give the number of complete checkpoints to keep, 1 or more")
        self.problem = ""
        """Why the last save failed; "" if it did not."""
        self.last_step: int | None = None
        """Newest step known to be durable."""
        self.staged_seconds = 0.0
        """Seconds for which the last save held up training."""
        self.durable_seconds = 0.0
        """Seconds from the call until the last complete save was durable."""
        self._folder = Folder(Path(folder).absolute())
        self._keep = keep
        self._staging = Staging()
        self._thread: threading.Thread | None = None
        self._logged: set[tuple[str, str]] = set()
        atexit.register(_finish, weakref.ref(self))

    def begin(self, job_uid: str, *, epoch: int, obeyed: Callable[[], int] = lambda: 0) -> None:
        """Begin to fence masters of earlier epochs, and this one once a later master has begun.

        A later master whose epoch is `obeyed` does not count, as it has taken this group over.
        """
        self._folder.obeyed = obeyed
        try:
            self._folder.create()
            self._folder.masters = Succession(str(self._folder.path), job_uid=job_uid, epoch=epoch)
            self._folder.masters.look()
        except OSError as error:
            logger.warning("an earlier master that is cut off will not learn of this one: %s", error)

    def save(
        self,
        state: Any,
        *,
        step: int,
        order: tuple[int, int],
        meta: Mapping[str, Any] | None = None,
        wait: bool = False,
        group: Any = None,
    ) -> None:
        """Save nested dicts, lists and tuples of tensors and of values that can be pickled.

        Without a group this process alone writes, in a thread, and no other rank may call; a save that is under way
        is waited for first. With a group (sharded tensors) all its ranks call, and it is done on return. `order` is
        (master epoch, generation); if somebody with a higher one has written here, this save is refused. `meta` must
        be fit for JSON. Raises CheckpointError only with `wait`.
        """
        self._join()
        world = dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1
        attempt = SaveAttempt(self._folder, step, WriterOrder(*order), dict(meta or {}), world, self._keep)
        began = time.monotonic()
        if group is None:
            self._save_alone(attempt, state, began)
        else:
            self._write(attempt, began, lambda: write_together(attempt, state, group))
            self.staged_seconds = time.monotonic() - began
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the save under way is durable. Raises CheckpointError if the last save failed."""
        self._join()
        if self.problem:
            raise CheckpointError(self.problem)

    def newest(self, group: Any = None) -> CompleteCheckpoint | None:
        """The newest complete checkpoint, every byte of it read; None if there never was one.

        With a group all its ranks call, each reads a share, and all find the same. Raises CheckpointError if there are
        some and none is complete, or the folder cannot be read.
        """
        if group is None:
            return self._newest(Manifest.check)
        together: CheckedTogether[CompleteCheckpoint | None] = CheckedTogether(group)
        if not together.is_first:
            return together.follow()
        try:
            checkpoint = self._newest(lambda manifest, path: together.check(manifest, path))
        except CheckpointError as error:
            together.end(error)
            raise
        together.end(checkpoint)
        return checkpoint

    def _newest(self, check: Callable[[Manifest, Path], None]) -> CompleteCheckpoint | None:
        refused = []
        try:
            for step, path in self._folder.checkpoints():
                manifest = _read_all(path, step, check)
                if isinstance(manifest, Manifest):
                    self.last_step = step
                    return CompleteCheckpoint(
                        path, step, manifest.meta, (manifest.order.epoch, manifest.order.generation)
                    )
                refused.append(f"{path.name}: {manifest}")
                self._log_once(path, str(manifest))
            for _, path in self._folder.leftovers():
                self._log_once(path, "it was not written to its end")
            if self._folder.has_latest() and not refused:
                refused.append("the file `latest` names one that does not exist any more")
        except OSError as error:
            raise CheckpointError(f"the folder of checkpoints {self._folder.path} cannot be read: {error}") from error
        if refused:
            raise CheckpointError(_none_complete(self._folder.path, refused))
        return None

    def load(self, checkpoint: CompleteCheckpoint, template: Mapping[str, Any] | None = None) -> Any:
        """Load a saved state.

        Parts (keys at the top) for which the template has tensors are read into those, also sharded ones, by each
        rank for itself; all other tensors are new, on the CPU. Values are the saved ones. Raises CheckpointError; the
        template's tensors may then be half written, unless the error is that shapes or keys differ.
        """
        try:
            saved = dcp.saved_tensors(checkpoint.path)
            into = tensors_of(template or {})
            _refuse_other_model(checkpoint.path, saved, into)
            tensors = {name: into[name] if name in into else dcp.empty(entry) for name, entry in saved.items()}
            dcp.read_into(tensors, checkpoint.path)
            return put_together((checkpoint.path / STRUCTURE).read_bytes(), tensors)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"checkpoint {checkpoint.path} cannot be loaded{_by_other_torch(checkpoint.path)}: {_text_of(error)}"
            ) from error

    def _save_alone(self, attempt: SaveAttempt, state: Any, began: float) -> None:
        staged = self._guarded(attempt, lambda: self._stage(attempt, state))
        self.staged_seconds = time.monotonic() - began
        if staged is not None:
            arguments = (attempt, began, lambda: write_alone(attempt, *staged))
            self._thread = threading.Thread(target=self._write, args=arguments, name="checkpoint", daemon=True)
            self._thread.start()

    def _stage(self, attempt: SaveAttempt, state: Any) -> tuple[Tensors, bytes]:
        json.dumps(attempt.meta)
        tensors, structure = take_apart(state)
        sharded = next((name for name, tensor in tensors.items() if is_sharded(tensor)), None)
        if sharded is not None:
            raise CheckpointStateError(
                f"{sharded} is sharded over several ranks: all of them must save together, with group="
            )
        return self._staging.copy(tensors), structure

    def _write(self, attempt: SaveAttempt, began: float, act: Callable[[], bool]) -> None:
        if self._guarded(attempt, act) is None:
            return
        self.durable_seconds = time.monotonic() - began
        self.last_step, self.problem = attempt.step, ""
        logger.info("checkpoint step=%d saved seconds=%.2f", attempt.step, self.durable_seconds)

    def _guarded(self, attempt: SaveAttempt, act: Callable[[], T]) -> T | None:
        """Run a save; None if it fails, since training goes on after any error here."""
        try:
            return act()
        except (Exception, dcp.FailedOnRanks) as error:  # noqa: BLE001
            reason = str(error) if isinstance(error, ElsewhereError) else attempt.reason(error)
            self.problem = f"step {attempt.step} was not saved: {reason}"
            logger.warning("checkpoint step=%d failed reason=%s", attempt.step, reason)
            return None

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _log_once(self, path: Path, why: str) -> None:
        if (path.name, why) not in self._logged:
            self._logged.add((path.name, why))
            logger.warning("checkpoint %s passed over reason=%s", path, why)

    def _finish(self) -> None:
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(EXIT_SECONDS)
            if thread.is_alive():
                logger.error("checkpoint given up reason=not written %.0f s after the end of training", EXIT_SECONDS)


def _finish(reference: weakref.ref[Checkpoints]) -> None:
    checkpoints = reference()
    if checkpoints is not None:
        checkpoints._finish()


def _read_all(path: Path, step: int, check: Callable[[Manifest, Path], None]) -> Manifest | TornError:
    """The manifest of a complete checkpoint, or why it is not one."""
    try:
        manifest = Manifest.read(path)
        check(manifest, path)
    except TornError as error:
        return error
    return manifest if manifest.step == step else TornError(f"it holds step {manifest.step}")


def _refuse_other_model(path: Path, saved: Mapping[str, Any], into: Tensors) -> None:
    """Refuse another model's checkpoint, by the parts for which the template has tensors."""
    parts = {name.split("/", 1)[0] for name in into}
    there = {name: tuple(entry.size) for name, entry in saved.items() if name.split("/", 1)[0] in parts}
    here = {name: tuple(tensor.shape) for name, tensor in into.items()}
    differing = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    if not differing:
        return
    named = "; ".join(
        f"{name}: {_shape(there, name)} there, {_shape(here, name)} here" for name in differing[:_NAMED_KEYS]
    )
    more = f"; and {len(differing) - _NAMED_KEYS} more" if len(differing) > _NAMED_KEYS else ""
    raise CheckpointError(
        f"checkpoint {path} is of another model or optimizer ({named}{more}): "
        "restore what it was made with, or choose another folder for checkpoints to start from the beginning"
    )


def _by_other_torch(path: Path) -> str:
    """A sentence that names both versions of torch. DCP reads files of older versions, and not always of newer ones."""
    try:
        wrote = Manifest.read(path).torch
    except TornError:
        return ""
    reads = str(torch.__version__)
    return "" if wrote == reads else f" (torch {wrote} wrote it, this is torch {reads})"


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, (CheckpointStateError, OSError)) else repr(error)


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str) -> str:
    return str(shapes[name]) if name in shapes else "missing"


def _none_complete(folder: Path, refused: list[str]) -> str:
    return (
        f"no checkpoint in {folder} is complete ({'; '.join(refused)}): "
        "repair it, or to start anew delete that folder's content or choose another folder"
    )

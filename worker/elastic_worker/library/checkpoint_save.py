"""One attempt to save one step: `begin`, then the tensors are written to `folder`, then `complete`, or `abandon`."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elastic_worker.library.checkpoint_dcp import FailedOnRanks
from elastic_worker.library.checkpoint_folder import Folder, OutdatedError
from elastic_worker.library.checkpoint_state import CheckpointStateError
from elastic_worker.library.manifest import Digest, Manifest, TornError, WriterOrder, sync_folder, write_durably

STRUCTURE = "structure.pickle"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SaveAttempt:
    """One save of one step by one writer."""

    place: Folder
    step: int
    order: WriterOrder
    meta: Mapping[str, Any]
    world: int
    keep: int

    @property
    def folder(self) -> Path:
        """Folder that the files are written to."""
        return self.place.unfinished(self.step, self.order)

    def begin(self, structure: bytes) -> bool:
        """Create the folder; False if this step is saved already. Raises OutdatedError, OSError."""
        self.place.create()
        self.place.refuse_if_outdated(self.order)
        if self._is_there():
            return False
        self.place.remove_leftovers(self.order)
        self.folder.mkdir()
        write_durably(self.folder / STRUCTURE, structure)
        return True

    def complete(self, files: Mapping[str, Digest]) -> None:
        """Make the durably written files the checkpoint of this step. Raises OutdatedError, OSError."""
        manifest = Manifest(self.step, self.order, str(torch.__version__), self.world, self.meta, files)
        sync_folder(self.folder)
        manifest.write(self.folder)
        self.place.publish(manifest)
        try:
            self.place.write_latest(self.step, self.order)
            self.place.prune(keep=self.keep, order=self.order)
        except (OSError, OutdatedError) as error:
            logger.warning("checkpoint step=%d saved, but the folder was not tidied reason=%s", self.step, error)

    def abandon(self) -> None:
        """Remove what was written."""
        self.place.remove_unfinished(self.step, self.order)

    def reason(self, error: BaseException) -> str:
        """Why the save failed, as text for users. A newer master that removed the files is named first."""
        if isinstance(error, (OutdatedError, CheckpointStateError)):
            return str(error)
        try:
            self.place.refuse_if_outdated(self.order)
        except OutdatedError as outdated:
            return str(outdated)
        except OSError as other:
            error = other
        return _describe(error, self.place.path)

    def _is_there(self) -> bool:
        """Whether this step is saved; a checkpoint of an earlier master does not count."""
        path = self.place.checkpoint(self.step)
        try:
            manifest = Manifest.read(path)
            if manifest.order.epoch < self.order.epoch:
                logger.info("checkpoint step=%d is written again reason=an earlier master wrote it", self.step)
                return False
            manifest.check(path)
        except TornError as error:
            if path.exists():
                logger.warning("checkpoint step=%d is written again reason=%s", self.step, error)
            return False
        return True


def _describe(error: BaseException, folder: Path) -> str:
    if isinstance(error, FailedOnRanks) and error.failures:
        rank, (failure, _) = next(iter(error.failures.items()))
        return f"on rank {rank}: {_describe(failure, folder)}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left in {folder}: make room, or choose another folder for checkpoints"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{os.strerror(error.errno)}: {error.filename or folder}"
    return f"{type(error).__name__}: {error}"

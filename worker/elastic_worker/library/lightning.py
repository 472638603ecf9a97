"""A Lightning Trainer as an elastic job: `Trainer(callbacks=[callback])`, of `lightning` or of `pytorch_lightning`.

    callback = elastic.LightningCallback("/checkpoints")
    trainer = Trainer(callbacks=[callback], strategy="ddp", **elastic.lightning_world(),
                      accumulate_grad_batches=elastic.accumulation_steps(96, 8))
    trainer.fit(model, data, ckpt_path=callback.newest())

A planned change costs no step: all ranks save after the same one, the script starts again, the Trainer resumes. After a
loss it resumes from the callback's newest checkpoint. Without our launcher the callback saves nothing.

Exact: model, optimizers, schedulers and `global_step` are unchanged. The Trainer keeps its place in the epoch as a
number of each process's batches, and would read the data of that epoch from its beginning; the callback counts the
batches for the present world and skips them. Each sample comes once in an epoch, also across changes within the epoch,
with `accumulation_steps`, a sampler that repeats the same order (Lightning's DistributedSampler does), and a multiple
of the global batch in an epoch. Not exact: without that line a step has more or fewer samples in another world, and an
epoch has correspondingly fewer or more steps; if the place in the epoch is no whole number of batches, some samples
come again. Random numbers are not in Lightning's checkpoints: dropout and augmentation begin again with the seed. A
loader without a sampler restarts the epoch; the Trainer handles one with `load_state_dict`. FSDP and DeepSpeed were not
tried.

The save is in `on_train_batch_end`, which the module and callbacks further down the list do not get again for that
batch: put this callback last. The group does not change after the last step of an epoch, unless that is its only step.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from elastic_worker.library.place import SurroundingsError, find
from elastic_worker.library.trainers import TrainerLine, barrier

log = logging.getLogger(__name__)

KEEP = 2
"""Number of checkpoints kept in the folder."""
PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The same code under two names."""


def _callback_class() -> Any:
    """The Callback class of the package that the script uses. Raises ModuleNotFoundError."""
    in_use = [name for name in PACKAGES if name in sys.modules]
    installed = [name for name in PACKAGES if find_spec(name.partition(".")[0]) is not None]
    return import_module((in_use or installed or PACKAGES)[0]).Callback


class LightningCallback(_callback_class()):  # type: ignore[misc]
    """Saves into `folder`, which all pods see: before planned changes, and every `every_n_steps` steps for losses.

    With `every_n_steps=0` only before planned changes: after a loss the job resumes from the last of these. Without our
    launcher nothing is saved.
    """

    def __init__(self, folder: str | Path, *, every_n_steps: int = 500) -> None:
        if every_n_steps < 0:
            raise ValueError(f"every_n_steps={every_n_steps}: give 0, or after how many steps to save")
        super().__init__()
        self.folder, self.every_n_steps = Path(folder), every_n_steps
        self._line = TrainerLine()
        self._step = self._saved_step = self._used_batches = 0
        self._passed_in_epoch = False
        self._steps: Any = None

    def newest(self) -> str | None:
        """Return the value for `ckpt_path`: the newest checkpoint that this callback has written, None without one."""
        checkpoints = _written(self.folder)
        return str(checkpoints[-1]) if checkpoints else None

    def state_dict(self) -> dict[str, Any]:
        """Return the callback's part of a checkpoint: the number of processes for which the Trainer counted batches."""
        return {"world": find(os.environ).world}

    def on_load_checkpoint(self, trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
        """Convert the place in the epoch to the present world, before the Trainer reads it from the checkpoint."""
        world = checkpoint.get("callbacks", {}).get(self.state_key, {}).get("world")
        if world:
            self._used_batches = _count_anew(checkpoint, world, trainer)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin the elastic part: all ranks are present and the checkpoint is loaded."""
        if self._used_batches:
            _skip(trainer, self._used_batches)
        self._step = self._saved_step = trainer.global_step
        self._steps = trainer.estimated_stepping_batches
        remedy = "call trainer.fit(..., ckpt_path=callback.newest())"
        self._line.begin(step=trainer.global_step, newest=self.newest(), remedy=remedy)

    def on_train_epoch_start(self, *_: Any) -> None:
        """Note the start of an epoch. The Trainer does not call this for the rest of an epoch that it resumes."""
        self._passed_in_epoch = False

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        """Pass a boundary if the optimizer has stepped, except at the end of an epoch, before its validation."""
        step = trainer.global_step
        if step == self._step:
            return
        self._step = step
        self._line.report(step=step, epoch=trainer.current_epoch, loss=_loss_of(outputs), steps=self._steps)
        if (trainer.is_last_batch and self._passed_in_epoch) or _is_over(trainer):
            return
        self._passed_in_epoch = True
        if self._line.boundary():
            self._save(trainer)
            self._line.saved_together(step)
        elif self._line.is_elastic and self.every_n_steps and step >= self._saved_step + self.every_n_steps:
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
        """Save on all ranks. A checkpoint is complete once it has its final name."""
        step = self._saved_step = trainer.global_step
        path = self.folder / f"elastic-step={step}.ckpt"
        unfinished = path.with_suffix(".unfinished")
        if trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            _remove(unfinished)
        barrier()
        trainer.save_checkpoint(unfinished)
        if trainer.is_global_zero:
            _remove(path)
            unfinished.rename(path)
            for old in _written(self.folder)[:-KEEP]:
                _remove(old)
            self._line.saved(step)


def lightning_world() -> dict[str, int]:
    """`num_nodes` and `devices` of the present group, which the Trainer requires as arguments."""
    world = find(os.environ).world
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if world % devices:
        raise SurroundingsError(f"WORLD_SIZE={world} is no multiple of LOCAL_WORLD_SIZE={devices}")
    return {"num_nodes": world // devices, "devices": devices}


class _Rest:
    """A sampler whose next pass leaves out its first samples."""

    def __init__(self, sampler: Any, used: int) -> None:
        self._sampler, self._used = sampler, used

    def __iter__(self) -> Iterator[Any]:
        used, self._used = self._used, 0
        return islice(iter(self._sampler), used, None)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _count_anew(checkpoint: dict[str, Any], world: int, trainer: Any) -> int:
    """Convert the checkpoint's count of batches per process from `world` processes to the present ones; returns it.

    Returns 0 if the checkpoint is not from the middle of an epoch.
    """
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    current = progress["current"]
    if progress["is_last_batch"] or current["completed"] == current["ready"]:
        return 0
    used: int = current["ready"] * world // trainer.world_size
    used -= used % trainer.accumulate_grad_batches
    current.update(ready=used, started=used, processed=used, completed=max(0, used - 1))
    return used


def _skip(trainer: Any, batches: int) -> None:
    """Let each loader skip that many batches of the epoch. A loader that keeps its own state does so by itself."""
    loop = trainer.fit_loop
    for loader in loop._combined_loader.flattened:
        sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
        if hasattr(loader, "load_state_dict"):
            continue
        if sampler is None:
            log.warning("%s has no sampler: samples of the epoch's beginning come again", type(loader).__name__)
            continue
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(trainer.current_epoch)
        loader.batch_sampler.sampler = _Rest(sampler, batches * loader.batch_sampler.batch_size)
    # The loader's workers have begun to read already.
    iter(loop._data_fetcher)


def _is_over(trainer: Any) -> bool:
    limit = trainer.max_steps
    return trainer.should_stop or (limit is not None and 0 <= limit <= trainer.global_step)


def _loss_of(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, dict) else None


def _written(folder: Path) -> list[Path]:
    """The callback's checkpoints in the folder, the oldest first."""
    matches = [(match, path) for path in folder.glob("elastic-step=*.ckpt") if (match := _numbered(path))]
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches)]


def _numbered(path: Path) -> re.Match[str] | None:
    return re.fullmatch(r"elastic-step=(\d+)\.ckpt", path.name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

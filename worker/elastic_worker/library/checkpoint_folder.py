"""The layout of a folder of checkpoints: `step-N`, unfinished `step-N.EPOCH-GENERATION.tmp`, and `latest`.

`step-N` appears by one rename, after everything in it is durable. A folder that it replaces is first renamed to
`old-N.EPOCH-GENERATION.tmp`, and is the checkpoint of that step while there is no `step-N`: NFS has no rename that
replaces a whole folder, or swaps two. `latest` names the newest checkpoint for users; the manifests decide. Unfinished
folders carry their writer's order. So two masters never write into the same one, and a newer master recognises
leftovers.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from elastic_worker.coordinator.succession import Succession
from elastic_worker.library.manifest import Manifest, TornError, WriterOrder, sync_folder, write_durably

LATEST = "latest"
TAKEN_OVER_SECONDS = 5.0
"""How long a save waits for a new master, which leaves its epoch at its start, to take the group over."""
LOOK_SECONDS = 0.1
_COMPLETE = re.compile(r"step-(\d+)")
_PUT_AWAY = re.compile(r"old-(\d+)\.\d+-\d+\.tmp")
_UNFINISHED = re.compile(r"(?:step-\d+|old-\d+|latest)\.(\d+)-(\d+)\.tmp")

logger = logging.getLogger(__name__)


class OutdatedError(Exception):
    """A writer with a higher order has written to this folder."""


class Folder:
    """One folder of checkpoints; every method may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.masters: Succession | None = None
        """The record of the epochs of this job's masters; None without masters."""
        self.obeyed: Callable[[], int] = lambda: 0
        """The epoch of the master that the writer obeys; it may be later than that of its group (125)."""

    def create(self) -> None:
        """Create the folder and its parents."""
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            sync_folder(self.path.parent)

    def checkpoint(self, step: int) -> Path:
        """Path of the complete checkpoint of a step."""
        return self.path / f"step-{step}"

    def unfinished(self, step: int, order: WriterOrder) -> Path:
        """Path of the unfinished checkpoint of a step."""
        return self.path / f"step-{step}.{order.epoch}-{order.generation}.tmp"

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Steps and folders of checkpoints with a final name, the newest first; empty without a folder.

        A later master's are newer (109): an earlier one may have done more steps before it was cut off. A checkpoint of
        an unknown writer is sorted by its step.
        """
        order = WriterOrder(0, 0)
        keyed = []
        for step, path in sorted([*self._published(), *self._put_away_alone()]):
            with contextlib.suppress(TornError):
                order = Manifest.read(path).order
            keyed.append((order, step, path))
        return [(step, path) for _, step, path in sorted(keyed, reverse=True)]

    def leftovers(self) -> list[tuple[WriterOrder, Path]]:
        """Unfinished folders: being written, or left by a killed writer."""
        kept = [path for _, path in self._put_away_alone()]
        matches = ((_UNFINISHED.fullmatch(path.name), path) for path in self._entries() if path not in kept)
        return [(WriterOrder(int(match[1]), int(match[2])), path) for match, path in matches if match]

    def has_latest(self) -> bool:
        """Whether a checkpoint was ever completed here."""
        return (self.path / LATEST).exists()

    def refuse_if_outdated(self, order: WriterOrder) -> None:
        """Raise OutdatedError if a newer master has begun, or if a newer master or generation has written here."""
        self._refuse_if_cut_off()
        newest = max(self._orders(), default=order)
        if newest > order:
            raise OutdatedError(_outdated(newest, order))

    def _refuse_if_cut_off(self) -> None:
        """Refuse a group that was cut off, but give a new master time to take it over after leaving its epoch."""
        if self.masters is None:
            return
        until = time.monotonic() + TAKEN_OVER_SECONDS
        while (latest := self.masters.look()) > max(self.masters.epoch, self.obeyed()):
            if time.monotonic() >= until:
                raise OutdatedError(
                    f"a newer master (epoch {latest}) has taken over; this one (epoch {self.masters.epoch}) is cut off"
                )
            time.sleep(LOOK_SECONDS)

    def remove_leftovers(self, order: WriterOrder) -> None:
        """Remove unfinished saves up to this order, whose writers have ended or are cut off."""
        for theirs, path in self.leftovers():
            if theirs <= order:
                logger.info("checkpoint unfinished=%s removed reason=left by an attempt that did not end", path.name)
                _remove(path)

    def remove_unfinished(self, step: int, order: WriterOrder) -> None:
        """Remove an unfinished checkpoint."""
        _remove(self.unfinished(step, order))

    def publish(self, manifest: Manifest) -> None:
        """Make an unfinished folder the checkpoint of its step, by one rename.

        It replaces a torn one of the same step, and an earlier master's, which is removed once this one is in place.
        Raises OutdatedError if a newer master has begun meanwhile.
        """
        unfinished = self.unfinished(manifest.step, manifest.order)
        target = self.checkpoint(manifest.step)
        sync_folder(unfinished)
        self.refuse_if_outdated(manifest.order)
        doomed = self._put_away(target, manifest.order) if target.exists() else None
        unfinished.rename(target)
        sync_folder(self.path)
        if doomed is not None:
            _remove(doomed)

    def prune(self, *, keep: int, order: WriterOrder) -> None:
        """Keep the `keep` newest complete checkpoints, remove older ones that no newer master wrote."""
        kept = 0
        for _, path in self.checkpoints():
            try:
                manifest = Manifest.read(path)
                manifest.check_sizes(path)
            except TornError:
                if kept >= keep:
                    self._discard(path, order)
                continue
            if kept >= keep and manifest.order <= order:
                self._discard(path, order)
            kept += 1

    def write_latest(self, step: int, order: WriterOrder) -> None:
        """Point `latest` to a checkpoint. Raises OutdatedError if that would hide a newer master's."""
        self.refuse_if_outdated(order)
        fields = {"folder": self.checkpoint(step).name, "step": step, "order": list(order)}
        draft = self.path / f"{LATEST}.{order.epoch}-{order.generation}.tmp"
        write_durably(draft, json.dumps(fields).encode() + b"\n")
        draft.rename(self.path / LATEST)
        sync_folder(self.path)

    def _discard(self, checkpoint: Path, order: WriterOrder) -> None:
        """Rename, then remove: a folder that is removed in part must not look like a checkpoint."""
        is_published = _COMPLETE.fullmatch(checkpoint.name)
        _remove(self._put_away(checkpoint, order) if is_published else checkpoint)

    def _published(self) -> list[tuple[int, Path]]:
        matches = ((_COMPLETE.fullmatch(path.name), path) for path in self._entries())
        return [(int(match[1]), path) for match, path in matches if match]

    def _put_away_alone(self) -> list[tuple[int, Path]]:
        """Complete checkpoints renamed by a writer that was killed before it had replaced or removed them."""
        published = {step for step, _ in self._published()}
        alone = []
        for path in self._entries():
            match = _PUT_AWAY.fullmatch(path.name)
            if match and int(match[1]) not in published:
                with contextlib.suppress(TornError):
                    Manifest.read(path).check_sizes(path)
                    alone.append((int(match[1]), path))
        return alone

    def _put_away(self, checkpoint: Path, order: WriterOrder) -> Path:
        number = checkpoint.name[len("step-") :]
        doomed = self.path / f"old-{number}.{order.epoch}-{order.generation}.tmp"
        checkpoint.rename(doomed)
        return doomed

    def _orders(self) -> Iterator[WriterOrder]:
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            yield WriterOrder(*map(int, json.loads((self.path / LATEST).read_bytes())["order"]))
        for _, path in self.checkpoints():
            with contextlib.suppress(TornError):
                yield Manifest.read(path).order

    def _entries(self) -> list[Path]:
        try:
            return list(self.path.iterdir())
        except FileNotFoundError:
            return []


def _outdated(newest: WriterOrder, order: WriterOrder) -> str:
    if newest.epoch > order.epoch:
        return f"a newer master (epoch {newest.epoch}) has written here; this one (epoch {order.epoch}) is cut off"
    return (
        f"a newer generation ({newest.generation}) of the group has written here; "
        f"this one ({order.generation}) is cut off"
    )


def _remove(path: Path) -> None:
    """Remove a folder and ignore errors: another process may have removed it, and the next save tries again."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

"""Checks a checkpoint with all ranks of a group: each reads a share of the files, and all get the result.

With as many ranks as when it was saved, each reads the files that it wrote: it loads the same files right after, from
the page cache. If one rank read all files, the others would wait for longer than their group's time limit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from elastic_worker.library.manifest import Manifest, TornError

_WRITTEN_BY = re.compile(r"__(\d+)_")

T = TypeVar("T")


class CheckedTogether(Generic[T]):
    """Every rank of a group makes one: the first rank calls `check` and `end`, the others `follow`."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._rank: int = dist.get_rank(group)
        self._world: int = dist.get_world_size(group)

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank."""
        return self._rank == 0

    def check(self, manifest: Manifest, folder: Path) -> None:
        """Let all ranks read their shares. Raises TornError with the first error found."""
        manifest.check_sizes(folder)
        self._say((manifest, folder))
        self._read_share(manifest, folder)

    def end(self, outcome: T | Exception) -> None:
        """Give all ranks the same outcome."""
        self._say(outcome)

    def follow(self) -> T:
        """Read the shares asked for, until the first rank ends; returns its outcome, or raises its error."""
        while True:
            sent: list[Any] = [None]
            dist.broadcast_object_list(sent, src=dist.get_global_rank(self._group, 0), group=self._group)
            if isinstance(sent[0], Exception):
                raise sent[0]
            if not isinstance(sent[0], tuple):
                outcome: T = sent[0]
                return outcome
            try:
                self._read_share(*sent[0])
            except TornError:
                continue  # the first rank has the error, too

    def _say(self, what: Any) -> None:
        dist.broadcast_object_list([what], src=dist.get_global_rank(self._group, 0), group=self._group)

    def _read_share(self, manifest: Manifest, folder: Path) -> None:
        problem = ""
        try:
            manifest.check_content(folder, [name for name in manifest.files if self._reader_of(name) == self._rank])
        except Exception as error:  # noqa: BLE001  # the others wait for an answer, also for an error
            problem = str(error) or repr(error)
        problems: list[str] = [""] * self._world
        dist.all_gather_object(problems, problem, group=self._group)
        if any(problems):
            raise TornError(next(filter(None, problems)))

    def _reader_of(self, name: str) -> int:
        writer = _WRITTEN_BY.match(name)
        return int(writer[1]) % self._world if writer else 0

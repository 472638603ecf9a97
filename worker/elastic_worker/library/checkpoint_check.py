"""Has the ranks of a group check a checkpoint together: each reads a share of its files, and all hear what was found.

A file is read by the rank that wrote it, where there are as many ranks: the same that loads it right after, from memory
still. One rank that read all for the others would keep them waiting for longer than their group does.
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
    """Of one group, all ranks of which make one: the first `check`s and `end`s, the others `follow`."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._rank: int = dist.get_rank(group)
        self._world: int = dist.get_world_size(group)

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank."""
        return self._rank == 0

    def check(self, manifest: Manifest, folder: Path) -> None:
        """All ranks read their shares. Raises TornError with what the first of them found wrong."""
        manifest.check_sizes(folder)
        self._say((manifest, folder))
        self._read_share(manifest, folder)

    def end(self, outcome: T | Exception) -> None:
        """All ranks have the same outcome."""
        self._say(outcome)

    def follow(self) -> T:
        """Read what is asked for until the first rank comes to an end. Raises what it has come to."""
        while True:
            told: list[Any] = [None]
            dist.broadcast_object_list(told, src=dist.get_global_rank(self._group, 0), group=self._group)
            if isinstance(told[0], Exception):
                raise told[0]
            if not isinstance(told[0], tuple):
                outcome: T = told[0]
                return outcome
            try:
                self._read_share(*told[0])
            except TornError:
                continue  # the first rank has heard it, too

    def _say(self, what: Any) -> None:
        dist.broadcast_object_list([what], src=dist.get_global_rank(self._group, 0), group=self._group)

    def _read_share(self, manifest: Manifest, folder: Path) -> None:
        problem = ""
        try:
            manifest.check_content(folder, [name for name in manifest.files if self._reader_of(name) == self._rank])
        except Exception as error:  # noqa: BLE001  # the others wait for an answer, whatever it is
            problem = str(error) or repr(error)
        problems: list[str] = [""] * self._world
        dist.all_gather_object(problems, problem, group=self._group)
        if any(problems):
            raise TornError(next(filter(None, problems)))

    def _reader_of(self, name: str) -> int:
        writer = _WRITTEN_BY.match(name)
        return int(writer[1]) % self._world if writer else 0

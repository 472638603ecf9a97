"""The order of an epoch's samples: by version, torch.randperm or a keyed permutation that is computed on demand.

A place in the order is a pair (left, right) of a grid with at least as many places as there are samples. In turn, left
gets a keyed hash of right added, and right one of left, modulo the grid's sides (a Feistel network): each of these can
be undone, so no two places map to the same one. A result beyond the last sample is mapped again until it is a sample
(cycle walking; Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). The grid has no more than 2 sqrt(n)
such places. Only some windows of the order are kept in memory, and the order does not depend on torch's version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import isqrt

import torch

from elastic_worker.library.seeds import stable_hash

RANDPERM, KEYED = 1, 2
"""Versions: torch.randperm, which holds the whole order in memory, and the keyed permutation."""
ROUNDS = 8
BITS = 31
"""Bits of each factor, so that no product exceeds 63 bits."""
MASK = 2**BITS - 1
FACTORS = (0x5BD1E995, 0x2C1B3C6D)
WINDOW = 8192
"""Places computed at once: 0.1 us each, plus 0.2 ms for the call."""
WINDOWS = 4


class KeyedOrder:
    """The keyed order of `length` samples (at most 2 ** 61) for one seed and epoch."""

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        self.length = length
        self._left = isqrt(length - 1) + 1
        self._right = -(-length // self._left)
        self._keys = [stable_hash("shuffle", seed, epoch, number) & MASK for number in range(ROUNDS)]
        self._windows: deque[tuple[int, torch.Tensor]] = deque(maxlen=WINDOWS)

    def samples(self, first: int, count: int) -> list[int]:
        """Samples at places `first` to `first + count - 1`; fewer at the end of the epoch."""
        for begin, window in self._windows:
            if begin <= first and first + count <= begin + len(window):
                return _listed(window[first - begin : first - begin + count])
        end = max(first, min(first + max(count, WINDOW), self.length))
        window = self._at(torch.arange(first, end))
        self._windows.append((first, window))
        return _listed(window[:count])

    def _at(self, places: torch.Tensor) -> torch.Tensor:
        samples = self._moved(places)
        beyond = samples >= self.length
        while beyond.any():
            samples[beyond] = self._moved(samples[beyond])
            beyond = samples >= self.length
        return samples

    def _moved(self, places: torch.Tensor) -> torch.Tensor:
        left, right = places // self._right, places % self._right
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + _hash(left, key)) % self._right
            else:
                left = (left + _hash(right, key)) % self._left
        return left * self._right + right


def randperm(length: int, seed: int, epoch: int) -> torch.Tensor:
    """The order of RANDPERM: four bytes and some 30 ns per sample."""
    dtype = torch.int32 if length < 2**31 else torch.int64
    generator = torch.Generator().manual_seed(stable_hash("order", seed, epoch))
    return torch.randperm(length, generator=generator, dtype=dtype)


class EpochOrder:
    """The order of one epoch, by the version `kind`, or unshuffled."""

    def __init__(self, length: int, seed: int, epoch: int, *, kind: int, shuffle: bool) -> None:
        self._keyed = KeyedOrder(length, seed, epoch) if shuffle and kind == KEYED else None
        self._listed: Sequence[int] | torch.Tensor = range(length)
        if shuffle and kind == RANDPERM:
            self._listed = randperm(length, seed, epoch)

    def samples(self, first: int, count: int) -> list[int]:
        """At most `count` samples from place `first` on."""
        if self._keyed is not None:
            return self._keyed.samples(first, count)
        part = self._listed[first : first + count]
        return _listed(part) if isinstance(part, torch.Tensor) else list(part)


def _listed(samples: torch.Tensor) -> list[int]:
    return samples.tolist()  # type: ignore[no-any-return]


def _hash(numbers: torch.Tensor, key: int) -> torch.Tensor:
    """31 bits of each number of at most 31 bits."""
    mixed = ((numbers + key) & MASK) * FACTORS[0]
    mixed = ((mixed ^ (mixed >> 17)) & MASK) * FACTORS[1]
    return (mixed ^ (mixed >> 29)) & MASK

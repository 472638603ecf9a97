"""Whatever happens to a cluster, in whatever order: the rules hold (see `checker`)."""

from __future__ import annotations

import pytest

from tests.simulate.history import run_history

SEEDS = range(300)
FEW, BATCH, MANY = 20, 20, 10_000


def _batches(first: int, last: int, size: int) -> list[range]:
    return [range(start, min(start + size, last)) for start in range(first, last, size)]


def _live_through(seeds: range) -> None:
    for seed in seeds:
        run_history(seed)


def _name(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


@pytest.mark.parametrize("seeds", _batches(0, FEW, 5), ids=_name)
def test_the_rules_hold_in_a_few_histories(seeds):
    _live_through(seeds)


@pytest.mark.simulation
@pytest.mark.parametrize("seeds", _batches(FEW, SEEDS.stop, BATCH), ids=_name)
def test_the_rules_hold_in_three_hundred_histories(seeds):
    _live_through(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", _batches(0, MANY, 100), ids=_name)
def test_the_rules_hold_in_ten_thousand_histories(seeds):
    _live_through(seeds)

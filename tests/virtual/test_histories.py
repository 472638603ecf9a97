"""Random events of operators and of their lines, in any order, break no rule (see `history`, `fencing_checker`)."""

from __future__ import annotations

import pytest

from tests.virtual.history import run_history

FEW, SEEDS, BATCH, MANY = 20, 120, 20, 5_000


def _batches(first: int, last: int, size: int) -> list[range]:
    return [range(start, min(start + size, last)) for start in range(first, last, size)]


def _name(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def _live_through(seeds: range) -> None:
    for seed in seeds:
        run_history(seed)


@pytest.mark.parametrize("seeds", _batches(0, FEW, 5), ids=_name)
def test_the_rules_hold_in_a_few_histories_of_operators(seeds: range) -> None:
    _live_through(seeds)


@pytest.mark.simulation
@pytest.mark.parametrize("seeds", _batches(FEW, SEEDS, BATCH), ids=_name)
def test_the_rules_hold_in_a_hundred_histories_of_operators(seeds: range) -> None:
    _live_through(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", _batches(SEEDS, MANY, 50), ids=_name)
def test_the_rules_hold_in_thousands_of_histories_of_operators(seeds: range) -> None:
    _live_through(seeds)


def test_equal_seeds_give_equal_logs_and_requests() -> None:
    first, second = run_history(3, events=8), run_history(3, events=8)
    assert first.logs.lines == second.logs.lines
    assert [e.request for r in first.replicas for e in r.line.log] == [
        e.request for r in second.replicas for e in r.line.log
    ]

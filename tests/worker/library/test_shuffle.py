"""The order of an epoch's samples: each once, without structure, the same everywhere, and nothing kept of it."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elastic_worker.library.shuffle import WINDOW, EpochOrder, KeyedOrder

seeds = st.integers(-(2**63), 2**63)
CELLS = 32


def whole(length, seed=0, epoch=0):
    return torch.tensor(KeyedOrder(length, seed, epoch).samples(0, length))


@given(st.integers(1, 5000), seeds, st.integers(0, 10**6))
def test_each_sample_comes_once(length, seed, epoch):
    assert sorted(whole(length, seed, epoch).tolist()) == list(range(length))


@given(st.sampled_from([2**k + d for k in range(1, 21) for d in (-1, 0, 1)] + [k * k + 1 for k in range(2, 999, 97)]))
def test_each_sample_comes_once_where_the_grid_fits_badly(length):
    assert torch.equal(whole(length).sort().values, torch.arange(length))


@given(st.integers(5001, 2**61), seeds, st.data())
def test_samples_of_the_largest_sets_are_such_and_none_comes_twice(length, seed, data):
    order = KeyedOrder(length, seed, 0)
    first = data.draw(st.integers(0, length - 1))
    found = order.samples(0, 3000) + (order.samples(first, 3000) if first >= 3000 else [])  # apart from each other
    assert len(set(found)) == len(found)
    assert all(0 <= sample < length for sample in found)


@given(st.integers(1, 9000), st.lists(st.tuples(st.integers(0, 8999), st.integers(1, 3000)), max_size=8))
def test_the_order_is_the_same_in_all_parts_in_which_it_is_read(length, parts):
    order, all_of_it = KeyedOrder(length, 7, 1), whole(length, 7, 1).tolist()
    for first, count in parts:
        assert order.samples(first, count) == all_of_it[first : first + count]


@pytest.mark.parametrize(("length", "orders"), [(3, 6), (4, 24)])
def test_all_orders_of_few_samples_are_equally_likely(length, orders):
    """Chi-square, at the one-in-a-million end; the seeds are fixed."""
    count = 200 * orders
    found = Counter(tuple(whole(length, seed).tolist()) for seed in range(count))
    assert len(found) == orders
    assert sum((each - 200) ** 2 / 200 for each in found.values()) < {6: 36, 24: 71}[orders]


@pytest.mark.parametrize("length", [100_003, 2**17, 317 * 317])
def test_places_and_neighbours_have_no_structure(length):
    """Of where a sample lies and where it comes, and of two that come after each other, near or a grid's side apart."""
    order = whole(length, seed=3, epoch=2)
    side = int(length**0.5)
    assert chi_square(torch.arange(length), order, length) < 1250
    for lag in (1, 2, 3, 16, 31, 32, 64, side - 1, side, side + 1, 2 * side):
        assert chi_square(order[lag:], order[:-lag], length) < 1250, lag
    assert (order == torch.arange(length)).sum() < 10
    assert ((order[1:] - order[:-1]).abs() == 1).sum() < 15


def chi_square(one, other, length):
    """Of pairs in 32 x 32 cells: 1,023 degrees of freedom, so 1,250 is beyond five standard deviations."""
    cells = (one * CELLS // length) * CELLS + other * CELLS // length
    found = torch.bincount(cells, minlength=CELLS**2).double()
    expected = len(cells) / CELLS**2
    return ((found - expected) ** 2 / expected).sum().item()


def test_epochs_and_seeds_have_orders_that_tell_nothing_of_each_other():
    orders = [whole(100_003, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    for number, one in enumerate(orders):
        for other in orders[:number]:
            assert chi_square(one, other, 100_003) < 1250
            assert (one == other).sum() < 10


def test_the_numbers_stay_as_they_are():
    """An epoch goes on with them after an upgrade: another order needs another version (`order_kind`)."""
    assert KeyedOrder(10, 0, 0).samples(0, 10) == [3, 6, 8, 9, 2, 4, 0, 5, 7, 1]
    assert KeyedOrder(10**9, 12, 3).samples(5 * 10**8, 3) == [854295407, 195496099, 733278488]


def test_without_shuffling_they_come_as_they_lie():
    assert EpochOrder(10**12, 0, 0, kind=2, shuffle=False).samples(10**12 - 3, 8) == [
        10**12 - 3,
        10**12 - 2,
        10**12 - 1,
    ]


def test_a_window_is_all_that_is_computed():
    order = KeyedOrder(10**15, 0, 0)
    assert len(order.samples(0, 10)) == 10
    assert len(order._windows[0][1]) == WINDOW
